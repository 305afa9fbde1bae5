//! Connected components of a mask, and removal of small ones.

use cutout_tensor::{OutOfMemory, memory};

use crate::{Mask, Size};

/// Neighbourhood that connects pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// Pixels that share a side (4-connected).
    Four,
    /// Pixels that share a side or a corner (8-connected).
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

/// Connected components of the pixels of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Component number of each pixel, `[height, width]`: from 1 in reading order, 0 for pixels of the other value.
    pub labels: Vec<u32>,
    /// Number of pixels of each component, starting with component 1.
    pub areas: Vec<usize>,
}

/// Finds the connected components of the pixels that are `value`.
pub fn connected_regions(
    mask: &Mask,
    value: bool,
    connectivity: Connectivity,
) -> Result<Regions, OutOfMemory> {
    let labels = memory::zeroed(mask.pixels().len())?;
    let mut regions = Regions { labels, areas: Vec::new() };
    // Pixels whose neighbours are not visited yet. A heap-allocated stack: recursion could overflow on large components.
    let mut open = Vec::new();
    for start in 0..regions.labels.len() {
        if mask.pixels()[start] != value || regions.labels[start] != 0 {
            continue;
        }
        let label = regions.areas.len() as u32 + 1;
        regions.labels[start] = label;
        memory::push(&mut open, start)?;
        let mut area = 0;
        while let Some(pixel) = open.pop() {
            area += 1;
            for next in neighbours(mask.size(), pixel, connectivity) {
                if mask.pixels()[next] == value && regions.labels[next] == 0 {
                    regions.labels[next] = label;
                    memory::push(&mut open, next)?;
                }
            }
        }
        memory::push(&mut regions.areas, area)?;
    }
    Ok(regions)
}

fn neighbours(size: Size, pixel: usize, connectivity: Connectivity) -> impl Iterator<Item = usize> {
    let (x, y) = (pixel % size.width, pixel / size.width);
    connectivity.steps().iter().filter_map(move |(right, down)| {
        let x = x.checked_add_signed(*right).filter(|x| *x < size.width)?;
        let y = y.checked_add_signed(*down).filter(|y| *y < size.height)?;
        Some(y * size.width + x)
    })
}

/// Kind of small components to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallRegions {
    /// Components of unset pixels; they are filled.
    Holes,
    /// Components of set pixels; they are cleared, except the largest if all are too small.
    Islands,
}

/// Meta's `remove_small_regions`: fills holes or clears islands of fewer than `area` pixels. Components are 8-connected.
/// Returns whether the mask changed.
pub fn remove_small_regions(
    mask: &mut Mask,
    area: usize,
    kind: SmallRegions,
) -> Result<bool, OutOfMemory> {
    let looked_for = kind == SmallRegions::Islands;
    let regions = connected_regions(mask, looked_for, Connectivity::Eight)?;
    let small = regions.areas.iter().map(|found| *found < area);
    let mut remove = memory::collected(regions.areas.len(), small)?;
    if !remove.contains(&true) {
        return Ok(false);
    }
    if kind == SmallRegions::Islands && !remove.contains(&false) {
        // The first component of the largest area.
        let most = regions.areas.iter().max();
        let largest = regions.areas.iter().position(|area| Some(area) == most);
        remove[largest.expect("there is a region to remove")] = false;
    }
    for (pixel, label) in mask.pixels_mut().iter_mut().zip(&regions.labels) {
        if *label != 0 && remove[*label as usize - 1] {
            *pixel = !looked_for;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_eight_connectivity_joins_corners() {
        let pixels = vec![true, false, false, true];
        let mask = Mask::from_pixels(Size::square(2), pixels).unwrap();
        assert_eq!(
            connected_regions(&mask, true, Connectivity::Four).unwrap().labels,
            [1, 0, 0, 2]
        );
        let eight = connected_regions(&mask, true, Connectivity::Eight).unwrap();
        assert_eq!((eight.labels, eight.areas), (vec![1, 0, 0, 1], vec![2]));
    }

    #[test]
    fn a_large_component_does_not_overflow_the_stack() {
        let mask = Mask::from_pixels(Size::new(1500, 1500), vec![true; 2_250_000]).unwrap();
        assert_eq!(connected_regions(&mask, true, Connectivity::Eight).unwrap().areas, [2_250_000]);
    }
}
