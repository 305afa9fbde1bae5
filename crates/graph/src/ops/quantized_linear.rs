//! Matrix product with a weight of signed bytes.

use cutout_tensor::{DType, Scales, TensorType, Tolerance};
use serde::Serializer;

use super::checks::{expect_inputs, saturating_product};
use super::{Activation, Epilogue};
use crate::cases::{CaseInput, Fill, noise, uniform, values};
use crate::op::{axes, expect_f32, expect_shape};
use crate::{Case, DenseTensor, OpDef, OpError, Real};

/// Longest run of bytes under one scale: a sum of this many products fits 32 bits.
pub const LONGEST_GROUP: usize = 1 << 17;

/// A row of activations whose largest magnitude is below this, 2^-120, counts as zeros.
pub const SMALLEST_ROW: f32 = f32::from_bits((127 - 120) << 23);

/// `x · weightᵀ` with a quantised weight and `x` quantised row by row on the way, then the epilogue.
///
/// `x: f32[.., K]`, `values: i8[N, K]`, `scales: f32[N, S]` with `S` as [`Scales::per_row`] says, then the epilogue's
/// inputs. Output `f32[.., N]`. The definition is exact up to the order of the last sum, so that backends agree on
/// every rounding to bytes. In `f32`, whatever the arithmetic around it, per row of `x`:
///
/// * `largest = max|x|`; `inverse = 127 / largest`, or 0 where `largest` is below [`SMALLEST_ROW`]: such a row counts
///   as zeros, since the quotient could overflow;
/// * `q = round(x * inverse)`, halves to even, within -127..=127.
///
/// Then `sum = largest / 127 * Σ_g d_g * scale_g` over the groups `g` of elements that share a scale, where
/// `d_g = Σ q * value` is exact in 32-bit integers: a group has at most [`LONGEST_GROUP`] elements.
///
/// A row of `x` with `NaN` or an infinity gives `NaN` in its whole row of sums.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct QuantizedLinear {
    /// Which elements of a row of the weight share a scale.
    #[serde(serialize_with = "serialize_scales")]
    pub scales: Scales,
    /// Scale, bias, activation and residual applied to the sums.
    pub epilogue: Epilogue,
}

/// Writes the name of the variant, as a derived implementation would.
fn serialize_scales<S: Serializer>(scales: &Scales, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match scales {
        Scales::PerRow => "PerRow",
        Scales::PerBlock => "PerBlock",
    })
}

/// One row of `x` as whole numbers times a step.
struct QuantizedRow {
    numbers: Vec<i64>,
    step: f32,
}

impl QuantizedRow {
    fn of<T: Real>(row: &[T]) -> Self {
        let row: Vec<f32> = row.iter().map(|x| x.as_f64() as f32).collect();
        if row.iter().any(|x| !x.is_finite()) {
            return QuantizedRow { numbers: vec![0; row.len()], step: f32::NAN };
        }
        let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let inverse = if largest < SMALLEST_ROW { 0.0 } else { 127.0 / largest };
        let quantize = |x: &f32| (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i64;
        QuantizedRow { numbers: row.iter().map(quantize).collect(), step: largest / 127.0 }
    }

    /// The row times one row of the weight.
    fn times<T: Real>(&self, values: &[i64], scales: &[T], group: usize) -> T {
        let mut sum = T::ZERO;
        for (index, (numbers, values)) in
            self.numbers.chunks(group).zip(values.chunks(group)).enumerate()
        {
            let products = numbers.iter().zip(values).map(|(number, value)| number * value);
            sum += T::of(products.sum::<i64>() as f64) * scales[index];
        }
        T::of(f64::from(self.step)) * sum
    }
}

impl OpDef for QuantizedLinear {
    const NAME: &'static str = "quantized_linear";

    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        Some(&mut self.epilogue)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        expect_inputs(3 + self.epilogue.inputs(), inputs.len())?;
        let (x, values, scales) = (inputs[0], inputs[1], inputs[2]);
        expect_f32("x", x)?;
        expect_f32("scales", scales)?;
        if values.dtype != DType::I8 {
            let found = values.clone();
            return Err(OpError::Type { input: "values", expected: "i8", found });
        }
        let [outputs, width] = axes("values", values)?;
        if x.rank() == 0 || x.shape.last_axis() != width {
            return Err(OpError::Shape(format!("the last axis of {x} is not that of {values}")));
        }
        expect_shape("scales", scales, &[outputs, self.scales.per_row(width)])?;
        let group = self.scales.block_length(width);
        if group > LONGEST_GROUP {
            return Err(OpError::Shape(format!(
                "at most {LONGEST_GROUP} elements may share a scale, got {group} in {values}"
            )));
        }
        let mut output = x.clone();
        *output.shape.last_mut().expect("the rank was checked") = outputs;
        self.epilogue.check(&inputs[3..], &output)?;
        super::checks::countable(output)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (x, weight, scales) = (inputs[0].real(), inputs[1].int(), inputs[2].real());
        let &[outputs, width] = &inputs[1].shape[..] else { panic!("inference checked the rank") };
        let (group, per_row) = (self.scales.block_length(width), self.scales.per_row(width));
        let mut shape = inputs[0].shape.clone();
        let rows = if outputs == 0 { 0 } else { shape.rows() };
        *shape.last_mut().expect("inference checked the rank") = outputs;
        let mut sums = Vec::with_capacity(shape.elements());
        for row in 0..rows {
            let row = QuantizedRow::of(&x[row * width..(row + 1) * width]);
            sums.extend((0..outputs).map(|output| {
                let scales = &scales[output * per_row..(output + 1) * per_row];
                row.times(&weight[output * width..(output + 1) * width], scales, group)
            }));
        }
        let mut sums = DenseTensor::from_real(shape, sums);
        self.epilogue.apply(&mut sums, &inputs[3..]);
        sums
    }

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        saturating_product(&[2, output.shape.elements(), inputs[0].shape.last_axis()])
    }

    fn cases() -> Vec<Case> {
        let row = QuantizedLinear { scales: Scales::PerRow, epilogue: Epilogue::NONE };
        let block = QuantizedLinear { scales: Scales::PerBlock, ..row };
        let bias = Epilogue { bias: true, ..Epilogue::NONE };
        let every = Epilogue { scale: 0.5, activation: Activation::Gelu, residual: true, ..bias };
        let case = |name, op: QuantizedLinear, x: CaseInput, extra: &[CaseInput]| {
            Case::new(name, op, weights(op, x, 65).into_iter().chain(extra.iter().cloned()))
        };
        let ends: Vec<f64> =
            (0..80).map(|i| if i < 40 { 0.0 } else { f64::from(i) - 60.5 }).collect();
        let bad = [1.0, f64::NAN, 2.0, 1.0, f64::INFINITY, 2.0, 1.0, -3.0, 2.0];
        vec![
            case("one_row", row, noise([5]), &[]),
            case("per_row", row, noise([2, 9, 70]), &[]),
            case("per_block", block, noise([2, 9, 96]), &[]),
            case("short_last_block", block, noise([7, 70]), &[]),
            case("deep", row, noise([3, 1100]), &[]),
            case("deep_blocks", block, noise([3, 1100]), &[]),
            case("zeros_and_halves", row, values(TensorType::f32([2, 40]), &ends), &[]),
            case("not_finite", block, values(TensorType::f32([3, 3]), &bad), &[]),
            case("no_rows", row, noise([0, 4]), &[]),
            case("no_depth", block, noise([2, 0]), &[]),
            case(
                "bias",
                QuantizedLinear { epilogue: bias, ..row },
                noise([20, 31]),
                &[noise([65])],
            ),
            case(
                "everything",
                QuantizedLinear { epilogue: every, ..block },
                noise([4, 5, 64]),
                &[noise([65]), noise([4, 5, 65])],
            )
            .within(Tolerance::FastMath),
        ]
    }
}

/// `x`, then random bytes and scales of `outputs` rows that fit it.
fn weights(op: QuantizedLinear, x: CaseInput, outputs: usize) -> [CaseInput; 3] {
    let width = x.ty.shape.last_axis();
    let bytes = CaseInput {
        ty: TensorType::new(DType::I8, [outputs, width]),
        fill: Fill::Uniform { low: -127.0, high: 128.0 },
    };
    [x, bytes, uniform([outputs, op.scales.per_row(width)], 0.001, 0.02)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_ROW: QuantizedLinear =
        QuantizedLinear { scales: Scales::PerRow, epilogue: Epilogue::NONE };

    #[test]
    fn the_definition_by_hand() {
        // largest 127: q = x rounded, halves to even; the step is 1.
        let x = DenseTensor::from_real([1, 4], vec![127.0f64, 2.5, -3.5, 0.4]);
        let values = DenseTensor::from_int([1, 4], vec![1, 10, 100, -127]);
        let scales = DenseTensor::from_real([1, 1], vec![0.5]);
        let output = PER_ROW.reference(&[&x, &values, &scales]);
        assert_eq!(output.real(), [(127.0 + 20.0 - 400.0) * 0.5]);
    }

    #[test]
    fn tiny_rows_are_zero_and_bad_rows_are_nan() {
        let values = DenseTensor::from_int([1, 2], vec![100, 100]);
        let scales = DenseTensor::from_real([1, 1], vec![1.0f32]);
        let run = |x: [f32; 2]| {
            PER_ROW.reference(&[&DenseTensor::from_real([2], x.to_vec()), &values, &scales]).real()
                [0]
        };
        assert_eq!(run([0.0, 0.0]), 0.0);
        assert_eq!(run([1e-44, 0.0]), 0.0);
        assert!(run([1e-36, 0.0]) > 0.0);
        assert!(run([f32::NAN, 1.0]).is_nan() && run([1.0, f32::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        let refusal = |scales, x: &[usize], values: [usize; 2], found: [usize; 2]| {
            let op = QuantizedLinear { scales, ..PER_ROW };
            let types =
                [TensorType::f32(x), TensorType::new(DType::I8, values), TensorType::f32(found)];
            op.infer(&types.each_ref()).unwrap_err().to_string()
        };
        let (row, block) = (Scales::PerRow, Scales::PerBlock);
        assert!(refusal(row, &[2, 5], [3, 4], [3, 1]).contains("is not that of i8[3, 4]"));
        assert!(refusal(row, &[], [3, 1], [3, 1]).contains("is not that of i8[3, 1]"));
        assert_eq!(
            refusal(block, &[2, 33], [3, 33], [3, 1]),
            "scales must have shape [3, 2], got f32[3, 1]"
        );
        assert!(refusal(row, &[1, 1 << 18], [1, 1 << 18], [1, 1]).contains("may share a scale"));
        let float = TensorType::f32([3, 4]);
        let scales = TensorType::f32([3, 1]);
        let error = PER_ROW.infer(&[&TensorType::f32([4]), &float, &scales]).unwrap_err();
        assert_eq!(error.to_string(), "values must be i8, got f32[3, 4]");
    }

    #[test]
    fn attributes_are_named_for_the_fixtures() {
        let json = serde_json::to_value(PER_ROW).unwrap();
        assert_eq!(json["scales"], "PerRow");
    }
}
