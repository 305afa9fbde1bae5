//! The epilogue: what happens to a sum before it is stored.

use cutout_graph::ops::{self, Activation};

use crate::execute::Inputs;
use crate::simd::Simd;
use crate::vecmath;

/// What is added to the activated sums.
#[derive(Clone, Copy, Debug)]
pub enum Residual<'a> {
    /// Nothing.
    None,
    /// A matrix of the output's shape.
    Rows {
        /// Its elements.
        data: &'a [f32],
        /// Elements from one row to the next.
        row_stride: usize,
    },
    /// What the output holds before the product.
    Output,
}

/// `activation(scale * sum + bias) + residual`, with the operands it reads. Every product and convolution ends with one.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Factor of the sums.
    pub scale: f32,
    /// One element per column.
    pub bias: Option<&'a [f32]>,
    /// Applied to the scaled and biased sums.
    pub activation: Activation,
    /// Added last.
    pub residual: Residual<'a>,
}

impl<'a> Epilogue<'a> {
    /// Leaves the sums as they are.
    pub const NONE: Epilogue<'static> = Epilogue {
        scale: 1.0,
        bias: None,
        activation: Activation::Identity,
        residual: Residual::None,
    };

    /// The epilogue of an op. Bias and residual are the inputs from `first` on; rows of the residual, like those of the output,
    /// are `row_stride` elements apart.
    pub(crate) fn new(
        op: &ops::Epilogue,
        inputs: &Inputs<'a>,
        first: usize,
        row_stride: usize,
    ) -> Epilogue<'a> {
        let position = first + usize::from(op.bias);
        let residual = match op.residual {
            false => Residual::None,
            true if inputs.is_in_place(position) => Residual::Output,
            true => Residual::Rows { data: inputs.f32(position), row_stride },
        };
        let bias = op.bias.then(|| inputs.f32(first));
        Epilogue { scale: op.scale, bias, activation: op.activation, residual }
    }

    /// The epilogue of an output that starts `elements` later.
    pub(crate) fn shifted(mut self, elements: usize) -> Epilogue<'a> {
        if let Residual::Rows { data, .. } = &mut self.residual {
            *data = &data[elements..];
        }
        self
    }

    /// Applies the epilogue to a vector of sums, given the elements of the bias and of the residual for its lanes.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(
        &self,
        simd: S,
        sum: S::F,
        bias: Option<S::F>,
        residual: Option<S::F>,
    ) -> S::F {
        let mut value = sum;
        if self.scale != 1.0 {
            value = simd.mul(value, simd.splat(self.scale));
        }
        if let Some(bias) = bias {
            value = simd.add(value, bias);
        }
        value = match self.activation {
            Activation::Identity => Identity::apply(simd, value),
            Activation::Relu => Relu::apply(simd, value),
            Activation::Gelu => Gelu::apply(simd, value),
            Activation::Sigmoid => Sigmoid::apply(simd, value),
        };
        match residual {
            Some(residual) => simd.add(value, residual),
            None => value,
        }
    }
}

/// An activation that is known at compile time. Implementations are `#[inline(always)]`.
pub(super) trait Function {
    fn apply<S: Simd>(simd: S, value: S::F) -> S::F;
}

/// Types for [`Activation`]'s variants.
macro_rules! functions {
    ($($name:ident: |$simd:ident, $x:ident| $value:expr;)*) => {$(
        pub(super) struct $name;

        impl Function for $name {
            #[inline(always)]
            fn apply<S: Simd>($simd: S, $x: S::F) -> S::F {
                $value
            }
        }
    )*};
}

functions! {
    Identity: |_simd, x| x;
    // `max` returns its second operand if either is NaN, so NaN stays NaN.
    Relu: |simd, x| simd.max(simd.splat(0.0), x);
    Gelu: |simd, x| vecmath::gelu(simd, x);
    Sigmoid: |simd, x| vecmath::sigmoid(simd, x);
}
