//! Connected regions of a mask, and removal of the small ones.

use crate::{Mask, Size};

/// Which pixels count as neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// Those that share a side.
    Four,
    /// Those that share a side or a corner.
    Eight,
}

impl Connectivity {
    fn steps(self) -> &'static [(isize, isize)] {
        const STEPS: [(isize, isize); 8] =
            [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)];
        match self {
            Connectivity::Four => &STEPS[..4],
            Connectivity::Eight => &STEPS,
        }
    }
}

/// The connected regions of the set pixels of a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// For each pixel, `[height, width]`, the number of its region from 1 on in reading order; 0 where nothing is set.
    pub labels: Vec<u32>,
    /// Pixels of each region; that of region 1 first.
    pub areas: Vec<usize>,
}

/// Finds the connected regions of the pixels that are `value`.
pub fn connected_regions(mask: &Mask, value: bool, connectivity: Connectivity) -> Regions {
    let mut regions = Regions { labels: vec![0; mask.pixels().len()], areas: Vec::new() };
    // Pixels whose neighbours have still to be looked at; explicit, so that no region is too long for the stack.
    let mut open = Vec::new();
    for start in 0..regions.labels.len() {
        if mask.pixels()[start] != value || regions.labels[start] != 0 {
            continue;
        }
        let label = regions.areas.len() as u32 + 1;
        regions.labels[start] = label;
        open.push(start);
        let mut area = 0;
        while let Some(pixel) = open.pop() {
            area += 1;
            for next in neighbours(mask.size(), pixel, connectivity) {
                if mask.pixels()[next] == value && regions.labels[next] == 0 {
                    regions.labels[next] = label;
                    open.push(next);
                }
            }
        }
        regions.areas.push(area);
    }
    regions
}

fn neighbours(size: Size, pixel: usize, connectivity: Connectivity) -> impl Iterator<Item = usize> {
    let (x, y) = (pixel % size.width, pixel / size.width);
    connectivity.steps().iter().filter_map(move |(right, down)| {
        let x = x.checked_add_signed(*right).filter(|x| *x < size.width)?;
        let y = y.checked_add_signed(*down).filter(|y| *y < size.height)?;
        Some(y * size.width + x)
    })
}

/// What is too small to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallRegions {
    /// Unset regions, which are filled.
    Holes,
    /// Set regions, which are cleared; if all are too small, the largest stays.
    Islands,
}

/// Meta's `remove_small_regions`: fills holes or clears islands of fewer than `area` pixels, corners connecting.
/// Says whether the mask changed.
pub fn remove_small_regions(mask: &mut Mask, area: usize, kind: SmallRegions) -> bool {
    let looked_for = kind == SmallRegions::Islands;
    let regions = connected_regions(mask, looked_for, Connectivity::Eight);
    let mut remove: Vec<bool> = regions.areas.iter().map(|found| *found < area).collect();
    if !remove.contains(&true) {
        return false;
    }
    if kind == SmallRegions::Islands && !remove.contains(&false) {
        // The first of the largest.
        let most = regions.areas.iter().max();
        let largest = regions.areas.iter().position(|area| Some(area) == most);
        remove[largest.expect("there is a region to remove")] = false;
    }
    for (pixel, label) in mask.pixels_mut().iter_mut().zip(&regions.labels) {
        if *label != 0 && remove[*label as usize - 1] {
            *pixel = !looked_for;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_connect_eight_and_not_four() {
        let pixels = vec![true, false, false, true];
        let mask = Mask::from_pixels(Size::square(2), pixels).unwrap();
        assert_eq!(connected_regions(&mask, true, Connectivity::Four).labels, [1, 0, 0, 2]);
        let eight = connected_regions(&mask, true, Connectivity::Eight);
        assert_eq!((eight.labels, eight.areas), (vec![1, 0, 0, 1], vec![2]));
    }

    #[test]
    fn a_region_of_many_pixels_needs_no_stack() {
        let mask = Mask::from_pixels(Size::new(1500, 1500), vec![true; 2_250_000]).unwrap();
        assert_eq!(connected_regions(&mask, true, Connectivity::Eight).areas, [2_250_000]);
    }
}
