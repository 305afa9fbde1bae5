//! Estimates of coefficients that an incomplete progressive file does not have.
//!
//! The coefficients of the lowest frequencies are estimated from the DC coefficients of the block and its 24 neighbours.
//! Where nothing but DC coefficients is known, these are smoothed too. Weights, rounding and the treatment of edges are
//! those of libjpeg-turbo 2.1 and later.

use crate::coefficients::{Coefficients, Plane};
use crate::frame::{Block, Component, Frame, ZIGZAG};

/// Coefficients that are estimated, and DC.
const ESTIMATED: usize = 10;

/// Bits that later scans would have added to a coefficient; [`UNKNOWN`] before the first scan.
type Precision = [i8; 64];

/// Precision of a coefficient that no scan had.
const UNKNOWN: i8 = -1;

/// What is known of each coefficient of each component.
pub(crate) struct Knowledge {
    /// After the last scan, and before the last scan of that component.
    now: Vec<Precision>,
    before: Vec<Precision>,
    scans: u32,
    /// The last row of units for which the last scan had data.
    pub(crate) last_good_row: usize,
}

impl Knowledge {
    pub(crate) fn new(components: usize) -> Self {
        Knowledge {
            now: vec![[UNKNOWN; 64]; components],
            before: vec![[0; 64]; components],
            scans: 0,
            last_good_row: 0,
        }
    }

    /// Notes a scan of coefficients `first` to `last` that leaves out `low` bits.
    pub(crate) fn add(&mut self, components: &[usize], (first, last): (usize, usize), low: u8) {
        self.scans += 1;
        for &component in components {
            let (now, before) = (&mut self.now[component], &mut self.before[component]);
            let copied = first.min(1)..=last.max(ESTIMATED - 1);
            if self.scans > 1 {
                before[copied.clone()].copy_from_slice(&now[copied]);
            } else {
                before[copied].fill(0);
            }
            now[first..=last].fill(low as i8);
        }
    }

    /// Whether estimates are needed and possible.
    pub(crate) fn is_incomplete(&self, frame: &Frame) -> bool {
        let usable = frame.components.iter().zip(&self.now).all(|(component, now)| {
            let steps = component.quantisation.unwrap_or([0; 64]);
            now[0] >= 0 && (0..ESTIMATED).all(|k| steps[usize::from(ZIGZAG[k])] != 0)
        });
        usable && self.now.iter().any(|now| now[1..ESTIMATED].iter().any(|&bits| bits != 0))
    }

    fn precision(&self, component: usize, unit_row: usize) -> Precision {
        if unit_row <= self.last_good_row {
            self.now[component]
        } else if self.scans > 1 {
            self.before[component]
        } else {
            [UNKNOWN; 64]
        }
    }
}

/// A coefficient and its estimate: weights of 25 DC coefficients, row by row, in units of 2^-8.
struct Estimate {
    /// Index in the order of the file.
    k: usize,
    weights: [i32; 25],
}

/// Estimates the coefficients of a row of blocks of one component.
pub(crate) struct RowSmoother<'a> {
    rows: [&'a [Block]; 5],
    columns: usize,
    steps: [i64; 64],
    precision: Precision,
    /// Whether no AC coefficient is known.
    only_dc: bool,
}

impl<'a> RowSmoother<'a> {
    /// For row `row` of blocks within row `unit_row` of units.
    pub(crate) fn new(
        coefficients: &'a Coefficients,
        knowledge: &Knowledge,
        frame: &Frame,
        component: usize,
        (unit_row, row): (usize, usize),
    ) -> Self {
        let part = &frame.components[component];
        let precision = knowledge.precision(component, unit_row);
        let steps = part.quantisation.unwrap_or([1; 64]).map(i64::from);
        RowSmoother {
            rows: rows_around(
                &coefficients.planes[component],
                part,
                frame.unit_rows,
                (unit_row, row),
            ),
            columns: part.block_columns,
            steps,
            precision,
            only_dc: precision[1..ESTIMATED].iter().all(|&bits| bits == UNKNOWN),
        }
    }

    /// The block in `column`, with estimates in place of unknown coefficients.
    pub(crate) fn block(&self, column: usize) -> Block {
        let mut block = self.rows[2][column];
        let neighbours = self.neighbours(column);
        let sum = |weights: &[i32; 25]| -> i64 {
            weights.iter().zip(neighbours).map(|(weight, dc)| i64::from(weight * dc)).sum()
        };
        let estimates: &[Estimate] = if self.only_dc { &FROM_DC } else { &WITH_AC };
        for Estimate { k, weights } in estimates {
            let place = usize::from(ZIGZAG[*k]);
            let bits = self.precision[*k];
            if bits == 0 || block[place] != 0 {
                continue;
            }
            let most = if bits > 0 { (1 << bits) - 1 } else { i64::MAX };
            block[place] = quotient(self.steps[0] * sum(weights), self.steps[place], most);
        }
        if self.only_dc {
            block[0] = quotient(self.steps[0] * sum(&SMOOTH_DC), self.steps[0], i64::MAX);
        }
        block
    }

    /// DC coefficients of the 5 by 5 blocks around `column`. Beyond the edges, the outermost are repeated.
    fn neighbours(&self, column: usize) -> [i32; 25] {
        std::array::from_fn(|index| {
            let wanted = (column + index % 5).saturating_sub(2);
            i32::from(self.rows[index / 5][wanted.min(self.columns - 1)][0])
        })
    }
}

/// Five rows of blocks: the given one, two above and two below. As in libjpeg, which rows exist is decided per row of units:
/// the last row of units includes its padding rows, and in the first one fewer rows are above.
fn rows_around<'a>(
    plane: &'a Plane,
    component: &Component,
    unit_rows: usize,
    (unit_row, row): (usize, usize),
) -> [&'a [Block]; 5] {
    let rows_here = if unit_row + 1 < unit_rows {
        component.vertical
    } else {
        (component.block_rows - 1) % component.vertical + 1
    };
    let counted = unit_row * rows_here + row;
    let rows_counted = rows_here * unit_rows;
    let here = unit_row * component.vertical + row;
    let above = if counted > 0 { here - 1 } else { here };
    let two_above = if counted > 1 { here - 2 } else { above };
    let below = if counted + 1 < rows_counted { here + 1 } else { here };
    let two_below = if counted + 2 < rows_counted { here + 2 } else { below };
    [two_above, above, here, below, two_below].map(|row| plane.row(row))
}

/// `sum / (2^8 step)`, rounded to the nearest, of at most the magnitude `most`.
fn quotient(sum: i64, step: i64, most: i64) -> i16 {
    let magnitude = (((step << 7) + sum.abs()) / (step << 8)).min(most);
    (if sum < 0 { -magnitude } else { magnitude }) as i16
}

/// If some AC coefficients are known: the lowest frequencies, from differences of neighbours.
#[rustfmt::skip]
const WITH_AC: [Estimate; 5] = [
    Estimate { k: 1, weights: [0, 0, 0, 0, 0,  0, 0, 0, 0, 0,  -7, 50, 0, -50, 7,  0, 0, 0, 0, 0,  0, 0, 0, 0, 0] },
    Estimate { k: 2, weights: [0, 0, -7, 0, 0,  0, 0, 50, 0, 0,  0, 0, 0, 0, 0,  0, 0, -50, 0, 0,  0, 0, 7, 0, 0] },
    Estimate { k: 3, weights: [0, 0, -1, 0, 0,  0, 0, 13, 0, 0,  0, 0, -24, 0, 0,  0, 0, 13, 0, 0,  0, 0, -1, 0, 0] },
    Estimate { k: 4, weights: [0, -1, 0, 1, 0,  -1, 10, 0, -10, 1,  0, 0, 0, 0, 0,  1, -10, 0, 10, -1,  0, 1, 0, -1, 0] },
    Estimate { k: 5, weights: [0, 0, 0, 0, 0,  0, 0, 0, 0, 0,  -1, 13, -24, 13, -1,  0, 0, 0, 0, 0,  0, 0, 0, 0, 0] },
];

/// If only DC coefficients are known: nine frequencies, from a wider neighbourhood.
#[rustfmt::skip]
const FROM_DC: [Estimate; 9] = [
    Estimate { k: 1, weights: [-1, -1, 0, 1, 1,  -3, 13, 0, -13, 3,  -3, 38, 0, -38, 3,  -3, 13, 0, -13, 3,  -1, -1, 0, 1, 1] },
    Estimate { k: 2, weights: [-1, -3, -3, -3, -1,  -1, 13, 38, 13, -1,  0, 0, 0, 0, 0,  1, -13, -38, -13, 1,  1, 3, 3, 3, 1] },
    Estimate { k: 3, weights: [0, 0, 1, 0, 0,  0, 2, 7, 2, 0,  0, -5, -14, -5, 0,  0, 2, 7, 2, 0,  0, 0, 1, 0, 0] },
    Estimate { k: 4, weights: [-1, 0, 0, 0, 1,  0, 9, 0, -9, 0,  0, 0, 0, 0, 0,  0, -9, 0, 9, 0,  1, 0, 0, 0, -1] },
    Estimate { k: 5, weights: [0, 0, 0, 0, 0,  0, 2, -5, 2, 0,  1, 7, -14, 7, 1,  0, 2, -5, 2, 0,  0, 0, 0, 0, 0] },
    Estimate { k: 6, weights: [0, 0, 0, 0, 0,  0, 1, 0, -1, 0,  0, 2, 0, -2, 0,  0, 1, 0, -1, 0,  0, 0, 0, 0, 0] },
    Estimate { k: 7, weights: [0, 0, 0, 0, 0,  0, 1, -3, 1, 0,  0, 0, 0, 0, 0,  0, -1, 3, -1, 0,  0, 0, 0, 0, 0] },
    Estimate { k: 8, weights: [0, 0, 0, 0, 0,  0, 1, 0, -1, 0,  0, -3, 0, 3, 0,  0, 1, 0, -1, 0,  0, 0, 0, 0, 0] },
    Estimate { k: 9, weights: [0, 0, 0, 0, 0,  0, 1, 2, 1, 0,  0, 0, 0, 0, 0,  0, -1, -2, -1, 0,  0, 0, 0, 0, 0] },
];

/// The smoothed DC coefficient.
#[rustfmt::skip]
const SMOOTH_DC: [i32; 25] =
    [-2, -6, -8, -6, -2,  -6, 6, 42, 6, -6,  -8, 42, 152, 42, -8,  -6, 6, 42, 6, -6,  -2, -6, -8, -6, -2];
