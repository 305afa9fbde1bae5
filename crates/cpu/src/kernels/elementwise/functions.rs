//! The elementwise functions as loops over one block.

use cutout_graph::ops::{BinaryKind, UnaryKind};

use crate::simd::{Kernel, Simd};
use crate::vecmath;

/// An argument of a step: a block of elements, or one number for all of them.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    Pointer(*const f32),
    Number(f32),
}

impl Argument {
    /// The vector at `position`, of which `count` lanes are used.
    ///
    /// # Safety
    ///
    /// A pointer is valid for reading `count` elements at `position`.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, simd: S, position: usize, count: usize) -> S::F {
        match self {
            Argument::Number(number) => simd.splat(number),
            Argument::Pointer(pointer) if count == S::LANES => {
                // SAFETY: `LANES` elements are readable by this function's contract.
                unsafe { simd.load_pointer(pointer.wrapping_add(position)) }
            }
            Argument::Pointer(pointer) => {
                // SAFETY: `count` elements are readable by this function's contract.
                unsafe { simd.load_partial_pointer(pointer.wrapping_add(position), count) }
            }
        }
    }

    /// The element at `position`.
    ///
    /// # Safety
    ///
    /// A pointer is valid for reading there.
    unsafe fn element(self, position: usize) -> f32 {
        match self {
            Argument::Number(number) => number,
            // SAFETY: by this function's contract.
            Argument::Pointer(pointer) => unsafe { pointer.wrapping_add(position).read() },
        }
    }
}

/// Writes `function` of each vector.
macro_rules! vectors {
    ($simd:ident, $length:ident, $target:ident, |$($x:ident = $argument:ident),*| $body:expr) => {{
        let mut position = 0;
        while position < $length {
            let count = S::LANES.min($length - position);
            // SAFETY: the caller's arguments reach `length` elements.
            $(let $x = unsafe { $argument.load($simd, position, count) };)*
            let result = $body;
            let target = $target.wrapping_add(position);
            if count == S::LANES {
                // SAFETY: the caller's target has `length` elements.
                unsafe { $simd.store_pointer(result, target) };
            } else {
                // SAFETY: as above.
                unsafe { $simd.store_partial_pointer(result, target, count) };
            }
            position += S::LANES;
        }
    }};
}

/// Writes `kind(x)` for `length` elements.
///
/// # Safety
///
/// `x` is readable and `target` writable for `length` elements; `target` is `x` itself or apart from it.
#[inline(always)]
pub(super) unsafe fn unary<S: Simd>(
    simd: S,
    kind: UnaryKind,
    x: Argument,
    target: *mut f32,
    length: usize,
) {
    let zero = simd.splat(0.0);
    let one = simd.splat(1.0);
    match kind {
        UnaryKind::Abs => vectors!(simd, length, target, |v = x| simd.abs(v)),
        UnaryKind::Erf => simd.vectorize(Erf { x, target, length }),
        UnaryKind::Exp => vectors!(simd, length, target, |v = x| vecmath::exp(simd, v)),
        UnaryKind::Floor => vectors!(simd, length, target, |v = x| simd.floor(v)),
        UnaryKind::Gelu => simd.vectorize(Gelu { x, target, length }),
        UnaryKind::Negate => vectors!(simd, length, target, |v = x| simd.neg(v)),
        UnaryKind::Reciprocal => vectors!(simd, length, target, |v = x| simd.div(one, v)),
        // `max` returns its second operand if either is NaN, so NaN stays NaN.
        UnaryKind::Relu => vectors!(simd, length, target, |v = x| simd.max(zero, v)),
        UnaryKind::Round => vectors!(simd, length, target, |v = x| simd.round(v)),
        UnaryKind::Sigmoid => vectors!(simd, length, target, |v = x| vecmath::sigmoid(simd, v)),
        UnaryKind::Sign => vectors!(simd, length, target, |v = x| sign(simd, v)),
        UnaryKind::Silu => {
            vectors!(simd, length, target, |v = x| simd.mul(v, vecmath::sigmoid(simd, v)));
        }
        UnaryKind::Sqrt => vectors!(simd, length, target, |v = x| simd.sqrt(v)),
        UnaryKind::Tanh => simd.vectorize(Tanh { x, target, length }),
        // Not vectorised: only used on small tensors, for position encodings and box arithmetic.
        UnaryKind::Cos | UnaryKind::Log | UnaryKind::Log2 | UnaryKind::Sin => {
            for position in 0..length {
                // SAFETY: by this function's contract.
                let value = unsafe { x.element(position) };
                // SAFETY: by this function's contract.
                unsafe { target.wrapping_add(position).write(kind.apply(value)) };
            }
        }
        UnaryKind::Not => panic!("chains hold no truth values"),
    }
}

/// Declares a kernel for one long function, so that it is compiled once, separately.
macro_rules! separate {
    ($($name:ident => $function:path;)*) => {$(
        struct $name {
            x: Argument,
            target: *mut f32,
            length: usize,
        }

        impl Kernel for $name {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, simd: S) {
                let $name { x, target, length } = self;
                vectors!(simd, length, target, |v = x| $function(simd, v));
            }
        }
    )*};
}

separate! {
    Erf => vecmath::erf;
    Gelu => vecmath::gelu;
    Tanh => vecmath::tanh;
}

/// The sign: -1, 0 or 1; NaN for NaN.
#[inline(always)]
fn sign<S: Simd>(simd: S, x: S::F) -> S::F {
    let zero = simd.splat(0.0);
    let positive = simd.select(simd.less(zero, x), simd.splat(1.0), x);
    simd.select(simd.less(x, zero), simd.splat(-1.0), positive)
}

/// The larger, or NaN if either is.
#[inline(always)]
fn maximum<S: Simd>(simd: S, a: S::F, b: S::F) -> S::F {
    simd.select(simd.equal(a, a), simd.max(a, b), a)
}

/// The smaller, or NaN if either is.
#[inline(always)]
fn minimum<S: Simd>(simd: S, a: S::F, b: S::F) -> S::F {
    simd.select(simd.equal(a, a), simd.min(a, b), a)
}

/// Writes `kind(a, b)` for `length` elements.
///
/// # Safety
///
/// Both arguments are readable and `target` writable for `length` elements; `target` is an argument or apart from it.
#[inline(always)]
pub(super) unsafe fn binary<S: Simd>(
    simd: S,
    kind: BinaryKind,
    arguments: [Argument; 2],
    target: *mut f32,
    length: usize,
) {
    let [a, b] = arguments;
    match kind {
        BinaryKind::Add => vectors!(simd, length, target, |x = a, y = b| simd.add(x, y)),
        BinaryKind::Subtract => vectors!(simd, length, target, |x = a, y = b| simd.sub(x, y)),
        BinaryKind::Multiply => vectors!(simd, length, target, |x = a, y = b| simd.mul(x, y)),
        BinaryKind::Divide => vectors!(simd, length, target, |x = a, y = b| simd.div(x, y)),
        BinaryKind::Maximum => vectors!(simd, length, target, |x = a, y = b| maximum(simd, x, y)),
        BinaryKind::Minimum => vectors!(simd, length, target, |x = a, y = b| minimum(simd, x, y)),
        BinaryKind::Power => {
            for position in 0..length {
                // SAFETY: by this function's contract.
                let x = unsafe { a.element(position) };
                // SAFETY: by this function's contract.
                let y = unsafe { b.element(position) };
                // SAFETY: by this function's contract.
                unsafe { target.wrapping_add(position).write(x.powf(y)) };
            }
        }
        BinaryKind::And | BinaryKind::Or => panic!("chains hold no truth values"),
    }
}
