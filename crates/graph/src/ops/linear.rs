//! Matrix product with a weight, and the epilogue that passes fuse into it.

use cutout_tensor::{TensorType, Tolerance};

use super::checks::countable;
use crate::cases::noise;
use crate::dense::{multiply, transposed};
use crate::op::{expect_f32, expect_shape, take};
use crate::ops::UnaryKind;
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Function applied by an epilogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Activation {
    /// The value itself.
    #[default]
    Identity,
    /// The larger of the value and 0.
    Relu,
    /// The exact (error function) GELU.
    Gelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

impl Activation {
    /// The function itself.
    pub fn apply<T: Real>(self, x: T) -> T {
        match self {
            Activation::Identity => x,
            Activation::Relu => UnaryKind::Relu.apply(x),
            Activation::Gelu => UnaryKind::Gelu.apply(x),
            Activation::Sigmoid => UnaryKind::Sigmoid.apply(x),
        }
    }
}

/// Applied to each sum before it is written: `activation(scale * sum + bias) + residual`.
///
/// The op's last inputs are the bias (`f32[channels]`) and the residual (shape of the output), as far as they exist.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Epilogue {
    /// Factor on the sum.
    pub scale: f32,
    /// Whether a bias is among the inputs.
    pub bias: bool,
    /// Function applied after the bias.
    pub activation: Activation,
    /// Whether a residual is among the inputs.
    pub residual: bool,
}

impl Epilogue {
    /// The epilogue that changes nothing.
    pub const NONE: Epilogue =
        Epilogue { scale: 1.0, bias: false, activation: Activation::Identity, residual: false };

    /// Inputs it adds to its op.
    pub fn inputs(&self) -> usize {
        usize::from(self.bias) + usize::from(self.residual)
    }

    /// Checks the epilogue and its inputs for an op whose output is `output`.
    pub(crate) fn check(&self, extra: &[&TensorType], output: &TensorType) -> Result<(), OpError> {
        if !self.scale.is_finite() {
            let scale = self.scale;
            return Err(OpError::Attribute(format!("the scale must be finite, got {scale}")));
        }
        let mut extra = extra.iter();
        if let Some(bias) = self.bias.then(|| extra.next()).flatten() {
            expect_f32("bias", bias)?;
            expect_shape("bias", bias, &[output.shape.last_axis()])?;
        }
        if let Some(residual) = self.residual.then(|| extra.next()).flatten() {
            expect_f32("residual", residual)?;
            expect_shape("residual", residual, &output.shape)?;
        }
        Ok(())
    }

    /// Applies the epilogue to sums laid out `[.., channels]`.
    pub(crate) fn apply<T: Real>(&self, sums: &mut DenseTensor<T>, extra: &[&DenseTensor<T>]) {
        let channels = sums.shape.last_axis();
        let bias = self.bias.then(|| extra[0].real());
        let residual = self.residual.then(|| extra[usize::from(self.bias)].real());
        let mut values = sums.real().to_vec();
        for (i, value) in values.iter_mut().enumerate() {
            let biased = *value * T::of(f64::from(self.scale))
                + bias.map_or(T::ZERO, |bias| bias[i % channels]);
            *value = self.activation.apply(biased) + residual.map_or(T::ZERO, |added| added[i]);
        }
        *sums = DenseTensor::from_real(sums.shape.clone(), values);
    }
}

/// `x · weightᵀ` over the last axis: `x: f32[.., inputs]`, `weight: f32[outputs, inputs]` as PyTorch keeps it, then
/// the epilogue.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Linear {
    /// Scale, bias, activation and residual applied to the sums.
    pub epilogue: Epilogue,
}

impl<'g> Value<'g> {
    /// `x · weightᵀ` over the last axis; see [`Linear`].
    #[track_caller]
    pub fn linear(self, weight: Value<'g>) -> Value<'g> {
        self.apply(Linear { epilogue: Epilogue::NONE }, &[weight])
    }
}

impl OpDef for Linear {
    const NAME: &'static str = "linear";

    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        Some(&mut self.epilogue)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let expected = 2 + self.epilogue.inputs();
        if inputs.len() != expected {
            return Err(OpError::Arity { expected, found: inputs.len() });
        }
        let [x, weight] = take(&inputs[..2])?;
        expect_f32("x", x)?;
        expect_f32("weight", weight)?;
        let &[outputs, width] = &weight.shape[..] else {
            return Err(OpError::Shape(format!("weight needs 2 axes, got {weight}")));
        };
        if x.rank() == 0 || x.shape.last_axis() != width {
            return Err(OpError::Shape(format!("the last axis of {x} is not that of {weight}")));
        }
        let mut output = x.clone();
        *output.shape.last_mut().expect("the rank was checked") = outputs;
        self.epilogue.check(&inputs[2..], &output)?;
        countable(output)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (x, weight) = (inputs[0].real(), inputs[1].real());
        let &[outputs, width] = &inputs[1].shape[..] else { panic!("inference checked the rank") };
        let mut shape = inputs[0].shape.clone();
        *shape.last_mut().expect("inference checked the rank") = outputs;
        let mut values = Vec::with_capacity(shape.elements());
        if width == 0 {
            values.resize(shape.elements(), T::ZERO);
        } else {
            multiply(x, &transposed(weight, width), outputs, &mut values);
        }
        let mut sums = DenseTensor::from_real(shape, values);
        self.epilogue.apply(&mut sums, &inputs[2..]);
        sums
    }

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        let depth = (inputs[0].shape.last_axis() as u64).saturating_mul(2);
        depth.saturating_mul(output.shape.elements() as u64)
    }

    fn cases() -> Vec<Case> {
        let plain = Linear { epilogue: Epilogue::NONE };
        let with = |epilogue| Linear { epilogue };
        let bias = Epilogue { bias: true, ..Epilogue::NONE };
        let every = Epilogue { scale: 0.5, activation: Activation::Gelu, residual: true, ..bias };
        vec![
            Case::new("one_row", plain, [noise([5]), noise([3, 5])]),
            Case::new("tokens", plain, [noise([2, 9, 33]), noise([70, 33])]),
            Case::new("few_rows", plain, [noise([7, 256]), noise([129, 256])]),
            Case::new("deep", plain, [noise([19, 1100]), noise([50, 1100])]),
            Case::new("no_depth", plain, [noise([2, 0]), noise([3, 0])]),
            Case::new("no_rows", plain, [noise([0, 4]), noise([3, 4])]),
            Case::new("bias", with(bias), [noise([20, 31]), noise([65, 31]), noise([65])]),
            Case::new(
                "relu",
                with(Epilogue { activation: Activation::Relu, ..bias }),
                [noise([20, 31]), noise([65, 31]), noise([65])],
            ),
            Case::new(
                "sigmoid",
                with(Epilogue { activation: Activation::Sigmoid, ..Epilogue::NONE }),
                [noise([20, 31]), noise([65, 31])],
            )
            .within(Tolerance::FastMath),
            Case::new(
                "everything",
                with(every),
                [noise([4, 5, 31]), noise([65, 31]), noise([65]), noise([4, 5, 65])],
            )
            .within(Tolerance::FastMath),
            Case::new(
                "residual",
                with(Epilogue { residual: true, ..Epilogue::NONE }),
                [noise([20, 31]), noise([65, 31]), noise([20, 65])],
            ),
        ]
    }
}
