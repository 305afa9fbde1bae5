//! Several rings as one, for formats whose shapes are single rings.

use super::{Point, Polygon};

/// One ring through all outlines and holes. Each is joined to the ones before by a line there and back, which cancels out
/// when the ring is filled: COCO's and YOLO's shapes have no holes. Empty without polygons.
pub fn single_ring(polygons: &[Polygon]) -> Vec<Point> {
    let mut joined: Vec<Point> = Vec::new();
    for ring in polygons.iter().flat_map(Polygon::rings).filter(|ring| !ring.is_empty()) {
        if joined.is_empty() {
            joined.clone_from(ring);
            continue;
        }
        let at = nearest(&joined, ring[0]);
        let first = nearest(ring, joined[at]);
        let (before, after) = joined.split_at(at);
        let round = ring[first..].iter().chain(&ring[..=first]);
        joined = before.iter().chain([&after[0]]).chain(round).chain(after).copied().collect();
    }
    joined
}

/// Index of the corner nearest to a point.
fn nearest(ring: &[Point], point: Point) -> usize {
    let squared = |other: &Point| (other[0] - point[0]).powi(2) + (other[1] - point[1]).powi(2);
    let by_distance = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
    let distances = ring.iter().map(squared).enumerate();
    distances.min_by(by_distance).map_or(0, |(index, _)| index)
}
