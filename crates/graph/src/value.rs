//! Handles to nodes, and the arithmetic model code writes with them.

use std::ops::{Add, Div, Mul, Neg, Sub};

use cutout_tensor::{Shape, TensorType};

use crate::graph::NodeId;
use crate::ops::{
    Attention, AttentionInputs, Binary, BinaryKind, Conv2d, ConvTranspose2d, Epilogue, GroupNorm,
    LayerNorm, Linear, MatMul, Reshape, Rope, Softmax, Unary, UnaryKind,
};
use crate::{Builder, Op};

/// A value of the graph being built: a small handle, free to copy.
#[derive(Clone, Copy)]
pub struct Value<'g> {
    builder: &'g Builder,
    id: NodeId,
}

impl<'g> Value<'g> {
    pub(crate) fn new(builder: &'g Builder, id: NodeId) -> Self {
        Value { builder, id }
    }

    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    /// The builder this value belongs to.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// Element type and shape.
    pub fn ty(self) -> TensorType {
        self.builder.ty(self.id)
    }

    /// Lengths of the axes.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// The axes as an array; another rank is an error of the model code, and gives ones.
    #[track_caller]
    pub fn dims<const N: usize>(self) -> [usize; N] {
        let ty = self.ty();
        match <[usize; N]>::try_from(&ty.shape[..]) {
            Ok(axes) => axes,
            Err(_) => {
                self.builder.fail(format!("expected {N} axes, got {ty}"));
                [1; N]
            }
        }
    }

    /// Adds any op with this value as its first input.
    #[track_caller]
    pub fn apply(self, op: impl Into<Op>, others: &[Value<'g>]) -> Value<'g> {
        let inputs: Vec<Value<'g>> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.builder.op(op, &inputs)
    }

    /// `x · weightᵀ` over the last axis; see [`Linear`].
    #[track_caller]
    pub fn linear(self, weight: Value<'g>) -> Value<'g> {
        self.apply(Linear { epilogue: Epilogue::NONE }, &[weight])
    }

    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape(self, shape: impl Into<Shape>) -> Value<'g> {
        self.apply(Reshape { shape: shape.into().to_vec() }, &[])
    }

    #[track_caller]
    fn unary(self, kind: UnaryKind) -> Value<'g> {
        self.apply(Unary { kind }, &[])
    }

    #[track_caller]
    fn binary(self, kind: BinaryKind, other: Value<'g>) -> Value<'g> {
        self.apply(Binary { kind }, &[other])
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident;)*) => {
        impl<'g> Value<'g> {
            $($(#[$doc])* #[track_caller] pub fn $method(self) -> Value<'g> { self.unary(UnaryKind::$kind) })*
        }
    };
}

unary_methods! {
    /// Absolute value.
    abs => Abs;
    /// Cosine of radians.
    cos => Cos;
    /// Error function.
    erf => Erf;
    /// e to the power.
    exp => Exp;
    /// Largest whole number not above.
    floor => Floor;
    /// Exact (error function) GELU.
    gelu => Gelu;
    /// Natural logarithm.
    log => Log;
    /// Logarithm to base two.
    log2 => Log2;
    /// Logical negation.
    logical_not => Not;
    /// One over.
    reciprocal => Reciprocal;
    /// The larger of the value and 0.
    relu => Relu;
    /// Nearest whole number, halves to even.
    round => Round;
    /// `1 / (1 + exp(-x))`.
    sigmoid => Sigmoid;
    /// -1, 0 or 1.
    sign => Sign;
    /// `x * sigmoid(x)`.
    silu => Silu;
    /// Sine of radians.
    sin => Sin;
    /// Square root.
    sqrt => Sqrt;
    /// Hyperbolic tangent.
    tanh => Tanh;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident;)*) => {
        impl<'g> Value<'g> {
            $($(#[$doc])* #[track_caller] pub fn $method(self, other: Value<'g>) -> Value<'g> {
                self.binary(BinaryKind::$kind, other)
            })*
        }
    };
}

binary_methods! {
    /// The larger of two elements.
    maximum => Maximum;
    /// The smaller of two elements.
    minimum => Minimum;
    /// To the power of another tensor's elements.
    power => Power;
    /// Both, of two `bool`.
    and => And;
    /// Either, of two `bool`.
    or => Or;
}

macro_rules! operators {
    ($($trait:ident $method:ident $kind:ident;)*) => {$(
        impl<'g> $trait for Value<'g> {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: Value<'g>) -> Value<'g> {
                self.binary(BinaryKind::$kind, other)
            }
        }
        impl<'g> $trait<f32> for Value<'g> {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: f32) -> Value<'g> {
                self.binary(BinaryKind::$kind, self.builder.scalar(other))
            }
        }
        impl<'g> $trait<Value<'g>> for f32 {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: Value<'g>) -> Value<'g> {
                other.builder.scalar(self).binary(BinaryKind::$kind, other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Subtract;
    Mul mul Multiply;
    Div div Divide;
}

impl<'g> Neg for Value<'g> {
    type Output = Value<'g>;
    #[track_caller]
    fn neg(self) -> Value<'g> {
        self.unary(UnaryKind::Negate)
    }
}

impl<'g> Value<'g> {
    /// Attention of these queries, without mask, bias, rotation or padding; see [`AttentionInputs::attend`] for those.
    #[track_caller]
    pub fn attention(self, key: Value<'g>, value: Value<'g>, op: Attention) -> Value<'g> {
        AttentionInputs::new(self, key, value).attend(op)
    }

    /// Convolution of `[batch, height, width, channels]`; see [`Conv2d`].
    #[track_caller]
    pub fn conv2d(self, weight: Value<'g>, op: Conv2d) -> Value<'g> {
        self.apply(op, &[weight])
    }

    /// Transposed convolution of `[batch, height, width, channels]`; see [`ConvTranspose2d`].
    #[track_caller]
    pub fn conv_transpose2d(self, weight: Value<'g>, op: ConvTranspose2d) -> Value<'g> {
        self.apply(op, &[weight])
    }

    /// Normalisation of `[batch, .., channels]` over groups of channels; see [`GroupNorm`].
    #[track_caller]
    pub fn group_norm(self, weight: Value<'g>, bias: Value<'g>, op: GroupNorm) -> Value<'g> {
        self.apply(op, &[weight, bias])
    }

    /// Normalisation over the last axis; see [`LayerNorm`].
    #[track_caller]
    pub fn layer_norm(self, weight: Value<'g>, bias: Value<'g>, epsilon: f32) -> Value<'g> {
        let axis = self.shape().rank().saturating_sub(1);
        self.apply(LayerNorm { axis, epsilon }, &[weight, bias])
    }

    /// Matrix product over the last two axes; see [`MatMul`].
    #[track_caller]
    pub fn matmul(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul { transpose_right: false }, &[right])
    }

    /// Matrix product with the transpose of `right: [.., N, K]`; see [`MatMul`].
    #[track_caller]
    pub fn matmul_transposed(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul { transpose_right: true }, &[right])
    }

    /// Rotation of every token of `[.., tokens, width]`; see [`Rope`].
    #[track_caller]
    pub fn rope(self, cos: Value<'g>, sin: Value<'g>) -> Value<'g> {
        self.apply(Rope { tail: 0 }, &[cos, sin])
    }

    /// Exponentials over the last axis that sum to one.
    #[track_caller]
    pub fn softmax(self) -> Value<'g> {
        self.apply(Softmax, &[])
    }
}

impl<'g> AttentionInputs<Value<'g>> {
    /// Adds an attention that takes exactly these inputs; see [`Attention`].
    #[track_caller]
    pub fn attend(self, op: Attention) -> Value<'g> {
        self.query.builder.op(op, &self.into_vec())
    }
}
