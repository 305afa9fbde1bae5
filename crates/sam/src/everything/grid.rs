//! Point grids.

/// Points between 0 and 1, in decoding order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Grid<'a> {
    /// `side` points along each axis, row by row, each in the middle of its cell.
    Even {
        /// Points along an axis.
        side: usize,
    },
    /// These points.
    Given(&'a [[f64; 2]]),
}

impl Grid<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Grid::Even { side } => side * side,
            Grid::Given(points) => points.len(),
        }
    }

    /// Point number `index`, (x, y).
    pub(super) fn point(self, index: usize) -> [f64; 2] {
        match self {
            Grid::Even { side } => [middle(index % side, side), middle(index / side, side)],
            Grid::Given(points) => points[index],
        }
    }
}

/// The middle of cell number `index` of `cells`, with the rounding of NumPy's `linspace`.
fn middle(index: usize, cells: usize) -> f64 {
    let first = 1.0 / (2 * cells) as f64;
    let last = 1.0 - first;
    if index + 1 == cells {
        return last;
    }
    let step = (last - first) / (cells - 1) as f64;
    index as f64 * step + first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::everything::Everything;
    use crate::everything::crops::tests::{answers, numbers};

    #[test]
    fn points_are_those_of_meta_to_the_last_bit() {
        for case in answers()["point_grids"].as_array().unwrap() {
            let grid = Grid::Even { side: case["side"].as_u64().unwrap() as usize };
            let points = case["points"].as_array().unwrap();
            assert_eq!(grid.len(), points.len());
            for (index, point) in points.iter().enumerate() {
                assert_eq!(grid.point(index)[..], numbers(point), "{case}");
            }
        }
    }

    #[test]
    fn layers_have_as_many_points_as_with_meta() {
        for case in answers()["layers"].as_array().unwrap() {
            let number = |key: &str| case[key].as_u64().unwrap() as usize;
            let options = Everything {
                points_per_side: number("points_per_side"),
                crop_n_layers: number("layers"),
                crop_n_points_downscale_factor: number("scale"),
                ..Everything::default()
            };
            let found: Vec<f64> =
                options.grids().unwrap().iter().map(|grid| grid.len() as f64).collect();
            assert_eq!(found, numbers(&case["points"]), "{case}");
        }
    }
}
