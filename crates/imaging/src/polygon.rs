//! Outlines of masks: polygons with holes along the edges of the pixels.

mod fill;
mod simplify;
mod text;

use std::collections::HashMap;

pub use fill::fill_polygons;
pub use text::{to_geojson, to_svg_path};

use crate::{Connectivity, Mask, connected_regions};

/// A corner: x to the right, y down; pixel (0, 0) reaches from 0 to 1.
pub type Point = [f64; 2];

/// A region with its holes. Rings are not closed by a repeated point, touch neither themselves nor each other except in
/// single points, and run clockwise on the screen outside, counter-clockwise around holes.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    /// The outline.
    pub outer: Vec<Point>,
    /// What is cut out of it.
    pub holes: Vec<Vec<Point>>,
}

impl Polygon {
    /// All rings, the outline first.
    pub fn rings(&self) -> impl Iterator<Item = &Vec<Point>> {
        std::iter::once(&self.outer).chain(&self.holes)
    }

    /// The same with fewer corners: no removed corner was further than `tolerance` pixels from the new line. Holes that
    /// vanish are left out; an outline that would vanish stays as it was.
    pub fn simplified(&self, tolerance: f64) -> Polygon {
        let outer = simplify::ring(&self.outer, tolerance).unwrap_or_else(|| self.outer.clone());
        let holes = self.holes.iter().filter_map(|hole| simplify::ring(hole, tolerance)).collect();
        Polygon { outer, holes }
    }

    /// COCO's form, `[x, y, x, y, …]` of the outline; COCO's polygons have no holes.
    pub fn to_coco(&self) -> Vec<f64> {
        self.outer.iter().flatten().copied().collect()
    }
}

/// The polygons of the regions of a mask that are connected by sides, in reading order. Filling them gives the mask.
pub fn polygons(mask: &Mask) -> Vec<Polygon> {
    let regions = connected_regions(mask, true, Connectivity::Four);
    let mut found = vec![Polygon { outer: Vec::new(), holes: Vec::new() }; regions.areas.len()];
    let mut seen = vec![false; mask.pixels().len()];
    for start in 0..mask.pixels().len() {
        let (x, y) = (start % mask.size().width, start / mask.size().width);
        let top = mask.pixels()[start] && (y == 0 || !mask.get(x, y - 1));
        if !top || seen[start] {
            continue;
        }
        let polygon = &mut found[regions.labels[start] as usize - 1];
        for ring in split(&trace(mask, (x, y), &mut seen)) {
            if twice_area(&ring) > 0.0 {
                polygon.outer = ring;
            } else {
                polygon.holes.push(ring);
            }
        }
    }
    found
}

/// A side of a pixel, walked with the pixel on the right hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Top,
    Right,
    Bottom,
    Left,
}

impl Side {
    /// Step along the side, and step away from the pixel.
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

    /// Where the walk along this side of pixel (`x`, `y`) begins.
    fn corner(self, (x, y): (usize, usize)) -> (usize, usize) {
        match self {
            Side::Top => (x, y),
            Side::Right => (x + 1, y),
            Side::Bottom => (x + 1, y + 1),
            Side::Left => (x, y + 1),
        }
    }
}

/// The corners of the outline that contains the upper side of pixel `start`. Marks the upper sides it walks along.
/// Where two set pixels meet in a corner only, the walk stays with its own.
fn trace(mask: &Mask, start: (usize, usize), seen: &mut [bool]) -> Vec<(usize, usize)> {
    let step = |(x, y): (usize, usize), (right, down): (isize, isize)| {
        let next = (x.checked_add_signed(right)?, y.checked_add_signed(down)?);
        mask.get(next.0, next.1).then_some(next)
    };
    let mut corners = Vec::new();
    let (mut pixel, mut side) = (start, Side::Top);
    loop {
        if side == Side::Top {
            seen[pixel.1 * mask.size().width + pixel.0] = true;
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
            corners.push(side.corner(pixel));
        }
        if pixel == start && side == Side::Top {
            return corners;
        }
    }
}

/// Cuts an outline that passes a corner twice into rings that pass every corner once.
fn split(corners: &[(usize, usize)]) -> Vec<Vec<Point>> {
    let mut rings = Vec::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut places: HashMap<(usize, usize), usize> = HashMap::new();
    let to_points = |corners: &[(usize, usize)]| -> Vec<Point> {
        corners.iter().map(|(x, y)| [*x as f64, *y as f64]).collect()
    };
    for &corner in corners {
        if let Some(&first) = places.get(&corner) {
            rings.push(to_points(&open[first..]));
            for closed in open.drain(first..) {
                places.remove(&closed);
            }
        }
        places.insert(corner, open.len());
        open.push(corner);
    }
    rings.push(to_points(&open));
    rings
}

/// Twice the area of a ring: positive for clockwise ones, y pointing down.
fn twice_area(ring: &[Point]) -> f64 {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(a, b)| a[0] * b[1] - b[0] * a[1]).sum()
}
