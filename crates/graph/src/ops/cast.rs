//! The same values in another element type.

use cutout_tensor::{DType, TensorType, Tolerance};
use half::{bf16, f16};

use crate::cases::{CaseInput, bools, integers, noise, uniform, values};
use crate::op::take;
use crate::{Case, Data, DenseTensor, OpDef, OpError, Real, Value};

/// The same values in another element type.
///
/// To a narrower float: through `f32`, to the nearest, halves to even. Float to integer: truncates, saturates, `NaN`
/// becomes 0. Integer to a narrower integer: saturates. To `bool`: "not zero". From `bool`: 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Cast {
    /// Element type of the result.
    #[serde(serialize_with = "by_name")]
    pub dtype: DType,
}

fn by_name<S: serde::Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

/// The float of type `dtype` that is nearest to `value`; an `F32` is as exact as `T` is.
fn rounded<T: Real>(value: f64, dtype: DType) -> T {
    match dtype {
        DType::F16 => T::of(f16::from_f32(value as f32).to_f64()),
        DType::BF16 => T::of(bf16::from_f32(value as f32).to_f64()),
        DType::F32 | DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => T::of(value),
    }
}

/// Smallest and largest value of an integer type.
fn bounds(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::U8 => (i64::from(u8::MIN), i64::from(u8::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => (i64::MIN, i64::MAX),
    }
}

impl Cast {
    /// Each element through the function for the kind of the result.
    fn convert<T: Real, X: Copy>(
        self,
        values: &[X],
        to_float: impl Fn(X) -> f64,
        to_integer: impl Fn(X) -> i64,
    ) -> Data<T> {
        let (low, high) = bounds(self.dtype);
        match self.dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                Data::Real(values.iter().map(|&x| rounded(to_float(x), self.dtype)).collect())
            }
            DType::I8 | DType::U8 | DType::I32 | DType::I64 => {
                Data::Int(values.iter().map(|&x| to_integer(x).clamp(low, high)).collect())
            }
            DType::Bool => Data::Bool(values.iter().map(|&x| to_float(x) != 0.0).collect()),
        }
    }
}

impl<'g> Value<'g> {
    /// The same values in another element type.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Value<'g> {
        self.apply(Cast { dtype }, &[])
    }
}

impl OpDef for Cast {
    const NAME: &'static str = "cast";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        Ok(TensorType::new(self.dtype, x.shape.clone()))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let data = match &inputs[0].data {
            Data::Real(values) => self.convert(values, |x| x.as_f64(), |x| x.as_f64() as i64),
            Data::Int(values) => self.convert(values, |x| x as f64, |x| x),
            Data::Bool(values) => self.convert(values, |x| f64::from(u8::from(x)), i64::from),
        };
        DenseTensor { shape: inputs[0].shape.clone(), data }
    }

    fn cases() -> Vec<Case> {
        let case = |name, dtype, input: CaseInput| {
            Case::new(name, Cast { dtype }, [input]).within(Tolerance::Exact)
        };
        let edges = [0.0, -0.0, 1.7, -1.7, 127.9, 300.5, -200.25, 3e9, -3e9, 1e20, -1e20];
        let edges = || values(TensorType::f32([11]), &edges);
        // Ties to even in both directions, the largest half, what rounds beyond it, a subnormal half.
        let ties = [2049.0, 2051.0, 65504.0, 65520.0, 6e-8, 257.0, 259.0];
        vec![
            case("to_half", DType::F16, noise([3, 37])),
            case("to_half_ties", DType::F16, values(TensorType::f32([7]), &ties)),
            case("to_brain", DType::BF16, noise([3, 37])),
            case("to_brain_ties", DType::BF16, values(TensorType::f32([7]), &ties)),
            case("from_half", DType::F32, noise([3, 37]).of(DType::F16)),
            case("from_brain", DType::F32, noise([3, 37]).of(DType::BF16)),
            case("to_byte", DType::U8, edges()),
            case("to_signed_byte", DType::I8, edges()),
            case("to_integer", DType::I32, edges()),
            case("to_index", DType::I64, uniform([5, 7], -1e6, 1e6)),
            case("to_bool", DType::Bool, edges()),
            case("from_index", DType::F32, integers([5, 7], -1000, 1000)),
            case("from_bytes", DType::F32, integers([5, 7], 0, 256).of(DType::U8)),
            case("from_bool", DType::F32, bools([5, 7])),
            case("integer_to_bool", DType::Bool, integers([5, 7], -1, 2)),
            case("bool_to_integer", DType::I32, bools([5, 7])),
            case("narrower", DType::I8, integers([5, 7], -300, 300)),
            case("empty", DType::F16, noise([0, 3])),
        ]
    }
}
