//! Connected components of a mask, and removal of small ones.

use std::ops::Range;

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
    /// How far the runs of neighbouring rows may be apart and still touch.
    fn reach(self) -> usize {
        match self {
            Connectivity::Four => 0,
            Connectivity::Eight => 1,
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

/// Connected components as horizontal runs of pixels, in reading order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRuns {
    runs: Vec<Run>,
    areas: Vec<usize>,
}

/// Pixels of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    end: usize,
    /// An earlier run of the same component, or itself; at last the number of the component from 0.
    component: usize,
}

impl RegionRuns {
    /// The components of the pixels, by row-major position, that are `inside`.
    pub fn find(
        size: Size,
        connectivity: Connectivity,
        inside: impl Fn(usize) -> bool,
    ) -> Result<Self, OutOfMemory> {
        let mut runs: Vec<Run> = Vec::new();
        let mut above = 0..0;
        for y in 0..size.height {
            let first = runs.len();
            let (mut position, end) = (y * size.width, (y + 1) * size.width);
            while position < end {
                if !inside(position) {
                    position += 1;
                    continue;
                }
                let start = position;
                while position < end && inside(position) {
                    position += 1;
                }
                let component = runs.len();
                memory::push(&mut runs, Run { start, end: position, component })?;
            }
            let row = first..runs.len();
            join_rows(&mut runs, above, row.clone(), (size.width, connectivity.reach()));
            above = row;
        }
        RegionRuns::numbered(runs)
    }

    /// Replaces the links between runs by the numbers of their components.
    fn numbered(mut runs: Vec<Run>) -> Result<Self, OutOfMemory> {
        let mut areas = Vec::new();
        for index in 0..runs.len() {
            let Run { start, end, component: earlier } = runs[index];
            // An earlier run has its number already: components begin with their first run.
            let component = if earlier == index { areas.len() } else { runs[earlier].component };
            if earlier == index {
                memory::push(&mut areas, 0)?;
            }
            runs[index].component = component;
            areas[component] += end - start;
        }
        Ok(RegionRuns { runs, areas })
    }

    /// Number of pixels of each component, in reading order of their first pixels.
    pub fn areas(&self) -> &[usize] {
        &self.areas
    }

    /// The row-major positions of each run with the index of its component.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        self.runs.iter().map(|run| (run.start..run.end, run.component))
    }
}

/// Joins the components of touching runs of two rows, the second right below the first.
fn join_rows(
    runs: &mut [Run],
    above: Range<usize>,
    below: Range<usize>,
    (width, reach): (usize, usize),
) {
    let (mut upper, mut lower) = (above.start, below.start);
    while upper < above.end && lower < below.end {
        let (over, under) = (runs[upper], runs[lower]);
        // Positions of the upper run as they are one row below.
        let (start, end) = (over.start + width, over.end + width);
        if start < under.end + reach && under.start < end + reach {
            let (one, other) = (root(runs, upper), root(runs, lower));
            runs[one.max(other)].component = one.min(other);
        }
        if end < under.end {
            upper += 1;
        } else {
            lower += 1;
        }
    }
}

/// The first run of a component. Shortens the way there.
fn root(runs: &mut [Run], mut index: usize) -> usize {
    while runs[index].component != index {
        let next = runs[index].component;
        runs[index].component = runs[next].component;
        index = next;
    }
    index
}

/// Finds the connected components of the pixels that are `value`.
pub fn connected_regions(
    mask: &Mask,
    value: bool,
    connectivity: Connectivity,
) -> Result<Regions, OutOfMemory> {
    let pixels = mask.pixels();
    let found = RegionRuns::find(mask.size(), connectivity, |pixel| pixels[pixel] == value)?;
    let mut labels = memory::zeroed(pixels.len())?;
    for (run, component) in found.runs() {
        labels[run].fill(component as u32 + 1);
    }
    Ok(Regions { labels, areas: found.areas })
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

    /// The definition: components grow pixel by pixel, in reading order.
    fn grown(mask: &Mask, value: bool, connectivity: Connectivity) -> Regions {
        let Size { width, height } = mask.size();
        let is_near = |a: usize, b: usize| {
            let (across, down) = ((a % width).abs_diff(b % width), (a / width).abs_diff(b / width));
            across.max(down) <= 1 && (connectivity == Connectivity::Eight || across + down <= 1)
        };
        let mut regions = Regions { labels: vec![0; width * height], areas: Vec::new() };
        let mut free: Vec<usize> =
            (0..width * height).filter(|pixel| mask.pixels()[*pixel] == value).collect();
        while !free.is_empty() {
            let mut found = vec![free.remove(0)];
            let mut next = 0;
            while next < found.len() {
                let (near, far): (Vec<usize>, Vec<usize>) =
                    free.into_iter().partition(|pixel| is_near(*pixel, found[next]));
                found.extend(near);
                (free, next) = (far, next + 1);
            }
            regions.areas.push(found.len());
            found.iter().for_each(|pixel| regions.labels[*pixel] = regions.areas.len() as u32);
        }
        regions
    }

    /// Compares runs with the definition for every connectivity and value.
    fn check(mask: &Mask) {
        for connectivity in [Connectivity::Four, Connectivity::Eight] {
            for value in [false, true] {
                let found = connected_regions(mask, value, connectivity).unwrap();
                let expected = grown(mask, value, connectivity);
                assert_eq!(found, expected, "{value} of {mask:?}, {connectivity:?}");
            }
        }
    }

    #[test]
    fn runs_give_the_components_that_pixels_grow_to() {
        let mut state = 7u32;
        let mut below = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 27) < limit
        };
        for (width, height) in [(1, 1), (1, 9), (9, 1), (5, 4), (16, 11), (31, 17)] {
            for share in [8, 16, 22] {
                let pixels = (0..width * height).map(|_| below(share)).collect();
                check(&Mask::from_pixels(Size::new(width, height), pixels).unwrap());
            }
        }
    }

    #[test]
    fn a_large_component_does_not_overflow_the_stack() {
        let mask = Mask::from_pixels(Size::new(1500, 1500), vec![true; 2_250_000]).unwrap();
        assert_eq!(connected_regions(&mask, true, Connectivity::Eight).unwrap().areas, [2_250_000]);
    }
}
