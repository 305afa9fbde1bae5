//! Simplification of outlines by Douglas and Peucker, corrected until no two outlines meet.

use std::collections::HashMap;

use super::crossing::{Segment, crossings, is_inside};
use super::{Point, Polygon, twice_area};

/// Longest chain of corners that one line may replace. Bounds the work, which grows with the square of it.
const LONGEST_CHAIN: usize = 4096;
/// Rounds of corrections by single corners; after these, whole chains are restored.
const GENTLE_ROUNDS: usize = 16;
/// Tolerance at which all corners of a ring are kept.
const LEAST_TOLERANCE: f64 = 1e-3;

/// Polygons with fewer corners:
///
/// - The corners that are left are corners of the originals, and every point of an original outline lies within `tolerance`
///   of the line that replaces it.
/// - The outlines cross neither themselves nor each other, and every region, hole and island stays what it was, if the
///   polygons are those of a mask. Points in which outlines touch are kept.
/// - No ring loses its area: a region that is narrower than the tolerance keeps more corners.
///
/// A tolerance of 0 or less, and corners that are not finite, change nothing.
pub fn simplify(polygons: &[Polygon], tolerance: f64) -> Vec<Polygon> {
    let finite =
        |polygon: &Polygon| polygon.rings().flatten().flatten().all(|value| value.is_finite());
    if tolerance.is_nan() || tolerance <= 0.0 || !polygons.iter().all(finite) {
        return polygons.to_vec();
    }
    let fixed = touching_corners(polygons);
    let rings = polygons.iter().flat_map(Polygon::rings);
    let mut rings: Vec<Ring<'_>> =
        rings.map(|corners| Ring::simplified(corners, &fixed, tolerance)).collect();
    for round in 0.. {
        let mut changed = false;
        for conflict in conflicts(&rings) {
            let ring = &mut rings[conflict.ring];
            let gentle = round < GENTLE_ROUNDS;
            changed |= if gentle { ring.refine(conflict) } else { ring.restore(conflict) };
        }
        if !changed {
            break;
        }
    }
    let mut rings = rings.into_iter().map(|ring| ring.kept().map(|i| ring.corners[i]).collect());
    let mut take = || rings.next().unwrap_or_default();
    let rebuilt = |polygon: &Polygon| Polygon {
        outer: take(),
        holes: polygon.holes.iter().map(|_| take()).collect(),
    };
    polygons.iter().map(rebuilt).collect()
}

/// A corner as a key of maps.
fn key(point: Point) -> [u64; 2] {
    // Adding 0 turns -0 into 0.
    point.map(|value| (value + 0.0).to_bits())
}

/// Corners that several outlines share. Outlines may touch there, so these corners and their neighbours stay.
fn touching_corners(polygons: &[Polygon]) -> HashMap<[u64; 2], usize> {
    let mut count = HashMap::new();
    for point in polygons.iter().flat_map(Polygon::rings).flatten() {
        *count.entry(key(*point)).or_insert(0) += 1;
    }
    count.retain(|_, count| *count > 1);
    count
}

/// A ring and the corners of it that are kept.
struct Ring<'a> {
    corners: &'a [Point],
    keep: Vec<bool>,
    /// A corner that belongs to no other ring is kept.
    sample: Option<Point>,
    tolerance: f64,
}

/// The part of a ring that one line replaces: from one kept corner to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) ring: usize,
    pub(super) start: usize,
    /// Index of the last corner; beyond the number of corners where the chain passes the start of the ring.
    pub(super) end: usize,
}

impl<'a> Ring<'a> {
    /// The ring at the given tolerance, or at the largest half, quarter, … of it that leaves it an area.
    fn simplified(corners: &'a [Point], fixed: &HashMap<[u64; 2], usize>, tolerance: f64) -> Self {
        let area = twice_area(corners);
        let sample = corners.iter().copied().find(|corner| !fixed.contains_key(&key(*corner)));
        let mut ring = Ring { corners, keep: vec![true; corners.len()], sample, tolerance };
        let anchors = ring.anchors(fixed);
        while corners.len() > 3 && ring.tolerance > LEAST_TOLERANCE {
            ring.keep.clone_from(&anchors);
            ring.divide(ring.chains(0).collect());
            let kept: Vec<Point> = ring.kept().map(|i| corners[i]).collect();
            let left = twice_area(&kept);
            if kept.len() >= 3 && left != 0.0 && (left > 0.0) == (area > 0.0) {
                return ring;
            }
            ring.tolerance /= 2.0;
        }
        ring.keep.fill(true);
        ring
    }

    /// The corners that stay in any case: those at which outlines touch with their neighbours, two that are far apart, and
    /// enough to bound the length of chains.
    fn anchors(&self, fixed: &HashMap<[u64; 2], usize>) -> Vec<bool> {
        let count = self.corners.len();
        let mut keep: Vec<bool> = (0..count).map(|i| i % LONGEST_CHAIN == 0).collect();
        for (index, corner) in self.corners.iter().enumerate() {
            if self.sample == Some(*corner) {
                keep[index] = true;
            }
            if fixed.contains_key(&key(*corner)) {
                keep[index] = true;
                keep[(index + 1) % count] = true;
                keep[(index + count - 1) % count] = true;
            }
        }
        let from_start = |i: &usize| distance(self.corners[*i], self.corners[0], self.corners[0]);
        let furthest = (0..count).max_by(|a, b| from_start(a).total_cmp(&from_start(b)));
        if let Some(furthest) = furthest {
            keep[furthest] = true;
        }
        keep
    }

    /// Keeps more corners of these chains until every other one is within the tolerance of the line that replaces it.
    fn divide(&mut self, mut open: Vec<Chain>) {
        while let Some(chain) = open.pop() {
            if let Some((worst, off)) = self.worst(chain)
                && off > self.tolerance
            {
                let index = worst % self.corners.len();
                self.keep[index] = true;
                open.extend([Chain { end: worst, ..chain }, Chain { start: worst, ..chain }]);
            }
        }
    }

    /// The corner of a chain that is furthest from its line, and the distance.
    fn worst(&self, chain: Chain) -> Option<(usize, f64)> {
        let [first, last] = [chain.start, chain.end].map(|i| self.corner(i));
        let off = (chain.start + 1..chain.end).map(|i| (i, distance(self.corner(i), first, last)));
        off.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn corner(&self, index: usize) -> Point {
        self.corners[index % self.corners.len()]
    }

    /// Indices of the kept corners.
    fn kept(&self) -> impl Iterator<Item = usize> {
        (0..self.corners.len()).filter(|i| self.keep[*i])
    }

    /// The chains between kept corners.
    fn chains(&self, ring: usize) -> impl Iterator<Item = Chain> {
        let first = self.kept().next().unwrap_or(0) + self.corners.len();
        let ends = self.kept().skip(1).chain(std::iter::once(first)).collect::<Vec<usize>>();
        let starts = self.kept().collect::<Vec<usize>>();
        starts.into_iter().zip(ends).map(move |(start, end)| Chain { ring, start, end })
    }

    /// Keeps the worst corner of a chain. `false` if it has none.
    fn refine(&mut self, chain: Chain) -> bool {
        let Some((worst, _)) = self.worst(chain) else { return false };
        let index = worst % self.corners.len();
        self.keep[index] = true;
        // What was close to the one line can be far from both of the new ones.
        self.divide(vec![Chain { end: worst, ..chain }, Chain { start: worst, ..chain }]);
        true
    }

    /// Keeps all corners of a chain. `false` if it has none that were not kept.
    fn restore(&mut self, chain: Chain) -> bool {
        let mut changed = false;
        for index in chain.start + 1..chain.end {
            let keep = &mut self.keep[index % self.corners.len()];
            changed |= !*keep;
            *keep = true;
        }
        changed
    }
}

/// The chains whose lines meet another line, or, if there are none, that have another ring on the wrong side.
fn conflicts(rings: &[Ring<'_>]) -> Vec<Chain> {
    let mut segments = Vec::new();
    for (index, ring) in rings.iter().enumerate() {
        segments.extend(ring.chains(index).map(|chain| Segment {
            a: ring.corner(chain.start),
            b: ring.corner(chain.end),
            is_changed: chain.end - chain.start > 1,
            chain,
        }));
    }
    let crossed = crossings(&segments);
    if crossed.is_empty() { swallowed(rings, &segments) } else { crossed }
}

/// The chains that have a corner of another ring between them and their line: the line passed over that ring.
fn swallowed(rings: &[Ring<'_>], segments: &[Segment]) -> Vec<Chain> {
    let mut samples: Vec<(Point, usize)> = Vec::new();
    for (index, ring) in rings.iter().enumerate() {
        samples.extend(ring.sample.map(|sample| (sample, index)));
    }
    samples.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]));
    let mut found = Vec::new();
    for segment in segments.iter().filter(|segment| segment.is_changed) {
        let (chain, ring) = (segment.chain, &rings[segment.chain.ring]);
        let area: Vec<Point> = (chain.start..=chain.end).map(|i| ring.corner(i)).collect();
        let least = area.iter().map(|point| point[0]).fold(f64::INFINITY, f64::min);
        let most = area.iter().map(|point| point[0]).fold(f64::NEG_INFINITY, f64::max);
        let first = samples.partition_point(|(point, _)| point[0] < least);
        let near = samples[first..].iter().take_while(|(point, _)| point[0] <= most);
        let mut others = near.filter(|(_, other)| *other != chain.ring);
        if others.any(|(point, _)| is_inside(*point, &area)) {
            found.push(chain);
        }
    }
    found
}

/// Distance of `point` from the line from `a` to `b`.
fn distance(point: Point, a: Point, b: Point) -> f64 {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let (px, py) = (point[0] - a[0], point[1] - a[1]);
    let squared = dx * dx + dy * dy;
    let along = if squared == 0.0 { 0.0 } else { ((px * dx + py * dy) / squared).clamp(0.0, 1.0) };
    (px - along * dx).hypot(py - along * dy)
}
