//! Rasterisation of polygons to masks.

use super::Polygon;
use crate::{ImageError, Mask, Size};

/// Sets the pixels whose centres lie inside a polygon and outside its holes (even-odd rule per polygon). Parts outside the
/// mask are clipped; corners with NaN coordinates are ignored.
pub fn fill_polygons(size: Size, polygons: &[Polygon]) -> Result<Mask, ImageError> {
    let mut mask = Mask::empty(size)?;
    for polygon in polygons {
        let mut crossings: Vec<Vec<f64>> = vec![Vec::new(); size.height];
        for ring in polygon.rings() {
            let next = ring.iter().cycle().skip(1);
            for (a, b) in ring.iter().zip(next) {
                cross(*a, *b, &mut crossings);
            }
        }
        let rows = mask.pixels_mut().chunks_exact_mut(size.width);
        for (row, mut crossings) in rows.zip(crossings) {
            crossings.sort_by(f64::total_cmp);
            for pair in crossings.chunks_exact(2) {
                let (start, end) = (column(pair[0], size), column(pair[1], size));
                row[start..end].fill(true);
            }
        }
    }
    Ok(mask)
}

/// First column whose pixel centre is at or right of `x`.
fn column(x: f64, size: Size) -> usize {
    ((x - 0.5).ceil().max(0.0) as usize).min(size.width)
}

/// Records the x coordinates where the line from `a` to `b` crosses the centre lines of rows.
fn cross(a: [f64; 2], b: [f64; 2], crossings: &mut [Vec<f64>]) {
    if !a.iter().chain(&b).all(|value| value.is_finite()) || a[1] == b[1] {
        return;
    }
    let (top, bottom) = if a[1] < b[1] { (a, b) } else { (b, a) };
    let row = |y: f64| ((y - 0.5).ceil().max(0.0) as usize).min(crossings.len());
    let (first, end) = (row(top[1]), row(bottom[1]));
    for (y, row) in crossings.iter_mut().enumerate().take(end).skip(first) {
        let share = (y as f64 + 0.5 - top[1]) / (bottom[1] - top[1]);
        row.push(top[0] + share * (bottom[0] - top[0]));
    }
}
