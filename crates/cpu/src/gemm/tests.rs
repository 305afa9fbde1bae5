//! Products against plain loops in `f64`, on every instruction set of the machine.

mod batched;
mod epilogues;
mod in_place;
mod packing;
mod shapes;
mod strassen;

use cutout_parallel::Pool;

use super::*;
use crate::simd::Isa;

/// Seeded noise (SplitMix64).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A float between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// A number from `1..=limit`.
    pub(crate) fn up_to(&mut self, limit: usize) -> usize {
        1 + (self.next() % limit as u64) as usize
    }
}

/// A left operand that cannot be read in place.
pub(super) struct Packed<'a>(pub(super) RowMajor<'a>);

impl LeftSource for Packed<'_> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn pack(&self, block: &PanelBlock, out: &mut [f32]) {
        self.0.pack(block, out);
    }
}

/// A product with all its inputs.
pub(super) struct Problem {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    /// Extra elements after each row of the left operand, the residual and the output.
    pub(super) gap: usize,
    pub(super) left: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) residual: Vec<f32>,
}

/// Value of the gaps of an output, which a product must not change.
pub(super) const UNTOUCHED: f32 = -77.0;

impl Problem {
    pub(super) fn new(rows: usize, depth: usize, columns: usize, gap: usize) -> Problem {
        let mut noise = Noise((rows * 1_000_003 + depth * 1009 + columns) as u64);
        Problem {
            rows,
            columns,
            depth,
            gap,
            left: noise.floats(rows * (depth + gap)),
            weight: noise.floats(columns * depth),
            bias: noise.floats(columns),
            residual: noise.floats(rows * (columns + gap)),
        }
    }

    pub(super) fn source(&self) -> RowMajor<'_> {
        RowMajor::new(&self.left, self.rows, self.depth, self.depth + self.gap)
    }

    pub(super) fn packed(&self, isa: Isa) -> PackedWeights {
        let data = WeightData::F32(&self.weight);
        PackedWeights::pack(
            &Pool::new(1),
            isa,
            &WeightView::output_major(data, self.columns, self.depth),
        )
        .unwrap()
    }

    /// Bias and residual of this problem with the given activation.
    pub(super) fn epilogue(&self, scale: f32, activation: Activation) -> Epilogue<'_> {
        let row_stride = self.columns + self.gap;
        let residual = Residual::Rows { data: &self.residual, row_stride };
        Epilogue { scale, bias: Some(&self.bias), activation, residual }
    }

    /// An output before the product: it holds the residual, so that `Residual::Output` gives the same result.
    pub(super) fn blank(&self) -> Vec<f32> {
        let mut output = self.residual.clone();
        for row in output.chunks_exact_mut((self.columns + self.gap).max(1)) {
            row[self.columns..].fill(UNTOUCHED);
        }
        output
    }

    pub(super) fn run(&self, isa: Isa, threads: usize, epilogue: &Epilogue<'_>) -> Vec<f32> {
        let mut output = self.blank();
        let target = Output::new(&mut output, self.columns + self.gap);
        gemm(&Pool::new(threads), &self.source(), &self.packed(isa), epilogue, target);
        output
    }

    /// The exact result of one element, and its tolerance.
    fn exact(&self, epilogue: &Epilogue<'_>, row: usize, column: usize) -> (f64, f64) {
        let left = &self.left[row * (self.depth + self.gap)..];
        let weight = &self.weight[column * self.depth..];
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for k in 0..self.depth {
            let product = f64::from(left[k]) * f64::from(weight[k]);
            sum += product;
            magnitude += product.abs();
        }
        let bias = epilogue.bias.map_or(0.0, |bias| f64::from(bias[column]));
        let value = activate(epilogue.activation, sum * f64::from(epilogue.scale) + bias);
        let residual = match epilogue.residual {
            Residual::None => 0.0,
            Residual::Rows { .. } | Residual::Output => {
                f64::from(self.residual[row * (self.columns + self.gap) + column])
            }
        };
        // In practice, rounding errors of a sum grow with the square root of its length.
        let growth = 1e-7 * (2.0 + (self.depth as f64).sqrt());
        let scale = f64::from(epilogue.scale).abs();
        (value + residual, growth * (magnitude * scale).min(scale * self.depth as f64) + 1e-6)
    }

    /// Panics unless every element is right and every gap unchanged.
    pub(super) fn check(&self, found: &[f32], epilogue: &Epilogue<'_>, what: &str) {
        let stride = self.columns + self.gap;
        for (row, values) in found.chunks_exact(stride.max(1)).enumerate() {
            for (column, &value) in values[..self.columns].iter().enumerate() {
                let (exact, tolerance) = self.exact(epilogue, row, column);
                let error = (f64::from(value) - exact).abs();
                assert!(
                    error <= tolerance,
                    "{what} {}x{}x{}: ({row}, {column}) is {value}, expected {exact}",
                    self.rows,
                    self.depth,
                    self.columns
                );
            }
            assert!(values[self.columns..].iter().all(|&x| x == UNTOUCHED), "{what}: gap of {row}");
        }
    }
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => x / 2.0 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

/// The error function by its Taylor series; exactly 1 where that is within 1e-16.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return 1f64.copysign(x);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..250 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    // Cancellation leaves an error of about e^(x²) / 1e16: harmless below 4, and erf is 1 there to 1e-8.
    if x.abs() > 4.0 { 1f64.copysign(x) } else { sum * std::f64::consts::FRAC_2_SQRT_PI }
}
