//! Four floats in a register that every processor of the target has: SSE2 on x86-64, NEON on AArch64, an array elsewhere.
//!
//! The compiler vectorises short straight code over arrays well, but not the arrays of accumulators of a matrix product; so
//! the operations of that inner loop are spelled out.

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use array::*;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;

/// Lanes of a [`Quad`].
pub(super) const QUAD: usize = 4;

/// Functions of two vectors that are one intrinsic each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! binary {
    ($($name:ident = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            pub(in super::super) fn $name(a: Quad, b: Quad) -> Quad {
                // SAFETY: the instruction is part of the target's baseline.
                unsafe { $intrinsic(a, b) }
            }
        )*
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;

    pub(in super::super) type Quad = __m128;

    binary! {
        add = _mm_add_ps;
        sub = _mm_sub_ps;
        mul = _mm_mul_ps;
        div = _mm_div_ps;
        max = _mm_max_ps;
        min = _mm_min_ps;
    }

    #[inline(always)]
    pub(in super::super) fn splat(value: f32) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { _mm_set1_ps(value) }
    }

    /// `a * b + c`, rounded twice: the baseline has no fused instruction.
    #[inline(always)]
    pub(in super::super) fn fma(a: Quad, b: Quad, c: Quad) -> Quad {
        add(mul(a, b), c)
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    pub(in super::super) type Quad = float32x4_t;

    binary! {
        add = vaddq_f32;
        sub = vsubq_f32;
        mul = vmulq_f32;
        div = vdivq_f32;
    }

    #[inline(always)]
    pub(in super::super) fn splat(value: f32) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { vdupq_n_f32(value) }
    }

    /// `a * b + c`, rounded once.
    #[inline(always)]
    pub(in super::super) fn fma(a: Quad, b: Quad, c: Quad) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { vfmaq_f32(c, a, b) }
    }

    /// The larger; `b` if either is NaN.
    #[inline(always)]
    pub(in super::super) fn max(a: Quad, b: Quad) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        let larger = unsafe { vcgtq_f32(a, b) };
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { vbslq_f32(larger, a, b) }
    }

    /// The smaller; `b` if either is NaN.
    #[inline(always)]
    pub(in super::super) fn min(a: Quad, b: Quad) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        let smaller = unsafe { vcltq_f32(a, b) };
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { vbslq_f32(smaller, a, b) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod array {
    pub(in super::super) type Quad = [f32; 4];

    /// Functions that do the same in each lane.
    macro_rules! lanewise {
        ($($name:ident($($argument:ident),*) = $lane:expr;)*) => {
            $(
                #[inline(always)]
                pub(in super::super) fn $name($($argument: Quad),*) -> Quad {
                    std::array::from_fn(|lane| { $(let $argument = $argument[lane];)* $lane })
                }
            )*
        };
    }

    lanewise! {
        add(a, b) = a + b;
        sub(a, b) = a - b;
        mul(a, b) = a * b;
        div(a, b) = a / b;
        fma(a, b, c) = a * b + c;
        max(a, b) = if a > b { a } else { b };
        min(a, b) = if a < b { a } else { b };
    }

    #[inline(always)]
    pub(in super::super) fn splat(value: f32) -> Quad {
        [value; 4]
    }
}
