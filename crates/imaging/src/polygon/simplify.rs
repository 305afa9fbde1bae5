//! Polygon simplification by Douglas and Peucker.

use super::{Point, twice_area};

/// Removes corners within `tolerance` of the line that replaces them. `None` if the result has no area.
pub(super) fn ring(ring: &[Point], tolerance: f64) -> Option<Vec<Point>> {
    if tolerance.is_nan() || tolerance <= 0.0 || ring.len() <= 3 {
        return Some(ring.to_vec());
    }
    // The ring is closed by its first point and split at the corner furthest from it.
    let closed: Vec<Point> = ring.iter().chain(ring.first()).copied().collect();
    let last = closed.len() - 1;
    let from_start = |i: &usize| distance(closed[*i], closed[0], closed[0]);
    let furthest = (1..last).max_by(|a, b| from_start(a).total_cmp(&from_start(b)))?;
    let mut keep = vec![false; closed.len()];
    keep[0] = true;
    keep[furthest] = true;
    let mut open = vec![(0, furthest), (furthest, last)];
    while let Some((start, end)) = open.pop() {
        let off = |i: &usize| distance(closed[*i], closed[start], closed[end]);
        let worst = (start + 1..end).max_by(|a, b| off(a).total_cmp(&off(b)));
        if let Some(worst) = worst.filter(|worst| off(worst) > tolerance) {
            keep[worst] = true;
            open.extend([(start, worst), (worst, end)]);
        }
    }
    let kept: Vec<Point> = closed[..last]
        .iter()
        .zip(keep)
        .filter_map(|(point, keep)| keep.then_some(*point))
        .collect();
    (kept.len() >= 3 && twice_area(&kept) != 0.0).then_some(kept)
}

/// Distance of `point` from the line through `a` and `b`; from `a` if they are equal.
fn distance(point: Point, a: Point, b: Point) -> f64 {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let (px, py) = (point[0] - a[0], point[1] - a[1]);
    let squared = dx * dx + dy * dy;
    let along = if squared == 0.0 { 0.0 } else { ((px * dx + py * dy) / squared).clamp(0.0, 1.0) };
    (px - along * dx).hypot(py - along * dy)
}
