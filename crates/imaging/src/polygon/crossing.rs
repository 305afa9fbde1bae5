//! Lines that meet. The signs are exact for corners of pixels: their products are below 2^53.

use super::Point;
use super::simplify::Chain;

/// Height of the strips that lines are sorted into.
const STRIP: f64 = 16.0;
/// Most strips.
const MOST_STRIPS: f64 = 4096.0;

/// A line that stands for a chain of corners.
pub(super) struct Segment {
    pub(super) a: Point,
    pub(super) b: Point,
    pub(super) chain: Chain,
    /// Whether the chain has corners between its ends.
    pub(super) is_changed: bool,
}

impl Segment {
    fn range(&self, axis: usize) -> (f64, f64) {
        (self.a[axis].min(self.b[axis]), self.a[axis].max(self.b[axis]))
    }
}

/// The chains of lines that meet another line elsewhere than in a common end. Pairs of unchanged lines are left out.
pub(super) fn crossings(segments: &[Segment]) -> Vec<Chain> {
    let top = segments.iter().map(|segment| segment.range(1).0).fold(f64::INFINITY, f64::min);
    let bottom =
        segments.iter().map(|segment| segment.range(1).1).fold(f64::NEG_INFINITY, f64::max);
    if segments.iter().all(|segment| !segment.is_changed) || !(bottom - top).is_finite() {
        return Vec::new();
    }
    let height = STRIP.max((bottom - top) / MOST_STRIPS);
    let strip = |y: f64| ((y - top) / height) as usize;
    let mut strips: Vec<Vec<usize>> = vec![Vec::new(); strip(bottom) + 1];
    for (index, segment) in segments.iter().enumerate() {
        let (from, to) = segment.range(1);
        strips[strip(from)..=strip(to)].iter_mut().for_each(|strip| strip.push(index));
    }
    let mut met = vec![false; segments.len()];
    for strip in &mut strips {
        sweep(strip, segments, &mut met);
    }
    let met = segments.iter().zip(met).filter(|(segment, met)| *met && segment.is_changed);
    met.map(|(segment, _)| segment.chain).collect()
}

/// Marks the lines of a strip that meet others, from left to right.
fn sweep(strip: &mut [usize], segments: &[Segment], met: &mut [bool]) {
    strip.sort_by(|a, b| segments[*a].range(0).0.total_cmp(&segments[*b].range(0).0));
    let mut active: Vec<usize> = Vec::new();
    for &index in &*strip {
        let segment = &segments[index];
        let ((left, _), (top, bottom)) = (segment.range(0), segment.range(1));
        active.retain(|other| segments[*other].range(0).1 >= left);
        for &other_index in &active {
            let other = &segments[other_index];
            let (above, below) = other.range(1);
            let near = above <= bottom && below >= top;
            if near && (segment.is_changed || other.is_changed) && meet(segment, other) {
                met[index] = true;
                met[other_index] = true;
            }
        }
        active.push(index);
    }
}

/// Whether two lines have a point in common that is not an end of both, or overlap.
fn meet(one: &Segment, other: &Segment) -> bool {
    let (a, b, c, d) = (one.a, one.b, other.a, other.b);
    for (shared, end, other_end) in
        [(a, b, if a == c { d } else { c }), (b, a, if b == c { d } else { c })]
    {
        if shared == c || shared == d {
            // They overlap if they leave the common end in the same direction.
            let (u, v) = (minus(end, shared), minus(other_end, shared));
            return cross(u, v) == 0.0 && u[0] * v[0] + u[1] * v[1] > 0.0;
        }
    }
    let side = |p: Point, q: Point, r: Point| cross(minus(q, p), minus(r, p));
    let (s1, s2) = (side(a, b, c), side(a, b, d));
    let (s3, s4) = (side(c, d, a), side(c, d, b));
    let apart = |s: f64, t: f64| (s > 0.0 && t < 0.0) || (s < 0.0 && t > 0.0);
    if apart(s1, s2) && apart(s3, s4) {
        return true;
    }
    let on = |s: f64, p: Point, q: Point, r: Point| {
        s == 0.0 && (0..2).all(|i| (p[i].min(q[i])..=p[i].max(q[i])).contains(&r[i]))
    };
    on(s1, a, b, c) || on(s2, a, b, d) || on(s3, c, d, a) || on(s4, c, d, b)
}

fn minus(a: Point, b: Point) -> Point {
    [a[0] - b[0], a[1] - b[1]]
}

fn cross(u: Point, v: Point) -> f64 {
    u[0] * v[1] - u[1] * v[0]
}

/// Whether a point lies inside a ring, by the even-odd rule.
pub(super) fn is_inside(point: Point, ring: &[Point]) -> bool {
    let next = ring.iter().cycle().skip(1);
    let crossed = ring.iter().zip(next).filter(|(a, b)| {
        let (a, b) = (**a, **b);
        (a[1] > point[1]) != (b[1] > point[1])
            && point[0] < a[0] + (point[1] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
    });
    crossed.count() % 2 == 1
}
