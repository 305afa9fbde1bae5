//! Outlines of masks: polygons with holes, along the pixel edges.

mod crossing;
mod fill;
mod join;
mod simplify;
mod text;

use std::collections::HashMap;

pub use fill::fill_polygons;
pub use join::single_ring;
pub use simplify::simplify;
pub use text::{to_geojson, to_svg_path, to_wkb};

use cutout_tensor::{OutOfMemory, memory};

use crate::{Connectivity, Mask, connected_regions};

/// A corner `[x, y]`: x to the right, y down. Pixel (0, 0) covers 0 to 1 on both axes.
pub type Point = [f64; 2];

/// A region with its holes. Rings do not repeat their first point, and touch themselves or each other in single points at
/// most. On the screen, outlines run clockwise and holes counter-clockwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    /// The outline.
    pub outer: Vec<Point>,
    /// Rings of the holes.
    pub holes: Vec<Vec<Point>>,
}

impl Polygon {
    /// All rings: the outline, then the holes.
    pub fn rings(&self) -> impl Iterator<Item = &Vec<Point>> {
        std::iter::once(&self.outer).chain(&self.holes)
    }

    /// The polygon in COCO's format, `[x, y, x, y, …]`, with its holes joined to the outline: see [`single_ring`].
    pub fn to_coco(&self) -> Vec<f64> {
        single_ring(std::slice::from_ref(self)).into_iter().flatten().collect()
    }
}

/// Polygons of the 4-connected regions of a mask, in reading order. Filling them reproduces the mask.
pub fn polygons(mask: &Mask) -> Result<Vec<Polygon>, OutOfMemory> {
    let regions = connected_regions(mask, true, Connectivity::Four)?;
    let none = || Polygon { outer: Vec::new(), holes: Vec::new() };
    let count = regions.areas.len();
    let mut found = memory::collected(count, std::iter::repeat_with(none))?;
    let mut seen = memory::zeroed::<u8>(mask.pixels().len())?;
    for start in 0..mask.pixels().len() {
        let (x, y) = (start % mask.size().width, start / mask.size().width);
        let top = mask.pixels()[start] && (y == 0 || !mask.get(x, y - 1));
        if !top || seen[start] != 0 {
            continue;
        }
        let polygon = &mut found[regions.labels[start] as usize - 1];
        for ring in split(&trace(mask, (x, y), &mut seen)?)? {
            if twice_area(&ring) > 0.0 {
                polygon.outer = ring;
            } else {
                memory::push(&mut polygon.holes, ring)?;
            }
        }
    }
    Ok(found)
}

/// A pixel, or the corner at its top left.
type Corner = (usize, usize);

/// A side of a pixel; the outline follows it with the pixel on its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Top,
    Right,
    Bottom,
    Left,
}

impl Side {
    /// The step along the side, and the step away from the pixel.
    fn directions(self) -> ((isize, isize), (isize, isize)) {
        match self {
            Side::Top => ((1, 0), (0, -1)),
            Side::Right => ((0, 1), (1, 0)),
            Side::Bottom => ((-1, 0), (0, 1)),
            Side::Left => ((0, -1), (-1, 0)),
        }
    }

    fn turned_right(self) -> Self {
        match self {
            Side::Top => Side::Right,
            Side::Right => Side::Bottom,
            Side::Bottom => Side::Left,
            Side::Left => Side::Top,
        }
    }

    fn turned_left(self) -> Self {
        self.turned_right().turned_right().turned_right()
    }

    /// The corner at which this side of pixel (`x`, `y`) starts.
    fn corner(self, (x, y): Corner) -> Corner {
        match self {
            Side::Top => (x, y),
            Side::Right => (x + 1, y),
            Side::Bottom => (x + 1, y + 1),
            Side::Left => (x, y + 1),
        }
    }
}

/// Corners of the outline that contains the upper side of pixel `start`. Marks the upper sides it passes in `seen`. Set
/// pixels that touch in a corner only are not connected.
fn trace(mask: &Mask, start: Corner, seen: &mut [u8]) -> Result<Vec<Corner>, OutOfMemory> {
    let step = |(x, y): Corner, (right, down): (isize, isize)| {
        let next = (x.checked_add_signed(right)?, y.checked_add_signed(down)?);
        mask.get(next.0, next.1).then_some(next)
    };
    let mut corners = Vec::new();
    let (mut pixel, mut side) = (start, Side::Top);
    loop {
        if side == Side::Top {
            seen[pixel.1 * mask.size().width + pixel.0] = 1;
        }
        let (along, away) = side.directions();
        let before = side;
        match step(pixel, along) {
            None => side = side.turned_right(),
            Some(ahead) => match step(ahead, away) {
                None => pixel = ahead,
                Some(beside) => (pixel, side) = (beside, side.turned_left()),
            },
        }
        if side != before {
            memory::push(&mut corners, side.corner(pixel))?;
        }
        if pixel == start && side == Side::Top {
            return Ok(corners);
        }
    }
}

/// Splits an outline that passes a corner twice into rings that pass each corner once.
fn split(corners: &[Corner]) -> Result<Vec<Vec<Point>>, OutOfMemory> {
    let mut rings = Vec::new();
    let mut open = memory::with_capacity::<Corner>(corners.len())?;
    let mut places: HashMap<Corner, usize> = HashMap::new();
    let bytes = corners.len().saturating_mul(size_of::<(Corner, usize)>());
    places.try_reserve(corners.len()).map_err(|_| OutOfMemory { bytes })?;
    let to_points = |corners: &[Corner]| {
        memory::collected(corners.len(), corners.iter().map(|(x, y)| [*x as f64, *y as f64]))
    };
    for &corner in corners {
        if let Some(&first) = places.get(&corner) {
            memory::push(&mut rings, to_points(&open[first..])?)?;
            for closed in open.drain(first..) {
                places.remove(&closed);
            }
        }
        places.insert(corner, open.len());
        open.push(corner);
    }
    memory::push(&mut rings, to_points(&open)?)?;
    Ok(rings)
}

/// Twice the signed area of a ring; positive if it runs clockwise on the screen.
fn twice_area(ring: &[Point]) -> f64 {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(a, b)| a[0] * b[1] - b[0] * a[1]).sum()
}
