//! The epilogue of a product, with the inputs it reads.

use cutout_graph::ops;

use crate::execute::Inputs;
use crate::gemm::{Activation, Epilogue, Residual};
use crate::simd::Simd;
use crate::vecmath;

/// `activation(scale * sum + bias) + residual` over an output `[.., channels]`.
#[derive(Clone, Copy)]
pub(crate) struct Fused<'a> {
    pub(crate) scale: f32,
    pub(crate) activation: Activation,
    /// One element per channel.
    pub(crate) bias: Option<&'a [f32]>,
    /// Shaped like the output.
    pub(crate) residual: Option<&'a [f32]>,
}

impl<'a> Fused<'a> {
    /// Reads the epilogue's inputs, which are those from `first` on.
    pub(crate) fn new(epilogue: &ops::Epilogue, inputs: &Inputs<'a>, first: usize) -> Self {
        let residual = first + usize::from(epilogue.bias);
        Fused {
            scale: epilogue.scale,
            activation: epilogue.activation,
            bias: epilogue.bias.then(|| inputs.f32(first)),
            residual: epilogue.residual.then(|| inputs.f32(residual)),
        }
    }

    /// The epilogue of a product that writes the whole output, `columns` elements a row, reading the inputs from `first`
    /// on. A residual that is overwritten is what the output holds.
    pub(crate) fn whole(
        epilogue: &ops::Epilogue,
        inputs: &Inputs<'a>,
        first: usize,
        columns: usize,
    ) -> Epilogue<'a> {
        let position = first + usize::from(epilogue.bias);
        let residual = match epilogue.residual {
            false => Residual::None,
            true if inputs.is_in_place(position) => Residual::Output,
            true => Residual::Rows { data: inputs.f32(position), row_stride: columns },
        };
        Epilogue {
            scale: epilogue.scale,
            bias: epilogue.bias.then(|| inputs.f32(first)),
            activation: epilogue.activation,
            residual,
        }
    }

    /// The same for a product whose rows start `row_stride` elements apart in the output, the first at `offset`, with a
    /// bias of its own.
    pub(crate) fn product(
        &self,
        bias: Option<&'a [f32]>,
        offset: usize,
        row_stride: usize,
    ) -> Epilogue<'a> {
        let rows = |data: &'a [f32]| Residual::Rows { data: &data[offset..], row_stride };
        Epilogue {
            scale: self.scale,
            bias,
            activation: self.activation,
            residual: self.residual.map_or(Residual::None, rows),
        }
    }

    /// Finishes a vector of sums, given the bias and the residual of its lanes.
    #[inline(always)]
    pub(crate) fn finish<S: Simd>(&self, simd: S, sums: S::F, bias: S::F, residual: S::F) -> S::F {
        let value = simd.fma(sums, simd.splat(self.scale), bias);
        let value = match self.activation {
            Activation::Identity => value,
            // The second operand wins where either is NaN: NaN stays NaN.
            Activation::Relu => simd.max(simd.splat(0.0), value),
            Activation::Gelu => vecmath::gelu(simd, value),
            Activation::Sigmoid => vecmath::sigmoid(simd, value),
        };
        simd.add(value, residual)
    }
}
