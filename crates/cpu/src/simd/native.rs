//! Vectors of four floats or integers in the baseline instruction set of the target: SSE2 on x86-64, NEON on AArch64, an array
//! elsewhere.
//!
//! The compiler vectorises short loops over arrays well, but not the accumulator arrays of a matrix product, so the operations of
//! that inner loop use intrinsics.

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use array::*;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;

/// Lanes of a [`Quad`].
pub(super) const QUAD: usize = 4;

/// Functions that are one intrinsic each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! intrinsics {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            pub(in super::super) fn $name($($argument: $type),*) -> $result {
                // SAFETY: the instruction is part of the target's baseline.
                unsafe { $intrinsic($($argument),*) }
            }
        )*
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;

    pub(in super::super) type Quad = __m128;
    pub(in super::super) type QuadInt = __m128i;

    intrinsics! {
        splat(value: f32) -> Quad = _mm_set1_ps;
        add(a: Quad, b: Quad) -> Quad = _mm_add_ps;
        sub(a: Quad, b: Quad) -> Quad = _mm_sub_ps;
        mul(a: Quad, b: Quad) -> Quad = _mm_mul_ps;
        div(a: Quad, b: Quad) -> Quad = _mm_div_ps;
        max(a: Quad, b: Quad) -> Quad = _mm_max_ps;
        min(a: Quad, b: Quad) -> Quad = _mm_min_ps;
        splat_int(value: i32) -> QuadInt = _mm_set1_epi32;
        add_int(a: QuadInt, b: QuadInt) -> QuadInt = _mm_add_epi32;
        to_float(a: QuadInt) -> Quad = _mm_cvtepi32_ps;
        dot4(sum: QuadInt, left: QuadInt, right: QuadInt) -> QuadInt = dot4_sse2;
    }

    /// `a * b + c`, rounded twice: the baseline has no fused instruction.
    #[inline(always)]
    pub(in super::super) fn fma(a: Quad, b: Quad, c: Quad) -> Quad {
        add(mul(a, b), c)
    }

    /// Adds the dot product of four signed bytes to each lane.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn dot4_sse2(sum: QuadInt, left: QuadInt, right: QuadInt) -> QuadInt {
        // Sign-extends bytes to 16 bits; products are added in pairs.
        let low = _mm_madd_epi16(
            _mm_srai_epi16::<8>(_mm_unpacklo_epi8(left, left)),
            _mm_srai_epi16::<8>(_mm_unpacklo_epi8(right, right)),
        );
        let high = _mm_madd_epi16(
            _mm_srai_epi16::<8>(_mm_unpackhi_epi8(left, left)),
            _mm_srai_epi16::<8>(_mm_unpackhi_epi8(right, right)),
        );
        let (low, high) = (_mm_castsi128_ps(low), _mm_castsi128_ps(high));
        let even = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high));
        let odd = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(low, high));
        _mm_add_epi32(sum, _mm_add_epi32(even, odd))
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    pub(in super::super) type Quad = float32x4_t;
    pub(in super::super) type QuadInt = int32x4_t;

    intrinsics! {
        splat(value: f32) -> Quad = vdupq_n_f32;
        add(a: Quad, b: Quad) -> Quad = vaddq_f32;
        sub(a: Quad, b: Quad) -> Quad = vsubq_f32;
        mul(a: Quad, b: Quad) -> Quad = vmulq_f32;
        div(a: Quad, b: Quad) -> Quad = vdivq_f32;
        max(a: Quad, b: Quad) -> Quad = max_neon;
        min(a: Quad, b: Quad) -> Quad = min_neon;
        splat_int(value: i32) -> QuadInt = vdupq_n_s32;
        add_int(a: QuadInt, b: QuadInt) -> QuadInt = vaddq_s32;
        to_float(a: QuadInt) -> Quad = vcvtq_f32_s32;
        dot4(sum: QuadInt, left: QuadInt, right: QuadInt) -> QuadInt = dot4_neon;
    }

    /// `a * b + c`, rounded once.
    #[inline(always)]
    pub(in super::super) fn fma(a: Quad, b: Quad, c: Quad) -> Quad {
        // SAFETY: the instruction is part of the target's baseline.
        unsafe { vfmaq_f32(c, a, b) }
    }

    /// The larger; `b` if either is NaN.
    #[inline]
    #[target_feature(enable = "neon")]
    fn max_neon(a: Quad, b: Quad) -> Quad {
        vbslq_f32(vcgtq_f32(a, b), a, b)
    }

    /// The smaller; `b` if either is NaN.
    #[inline]
    #[target_feature(enable = "neon")]
    fn min_neon(a: Quad, b: Quad) -> Quad {
        vbslq_f32(vcltq_f32(a, b), a, b)
    }

    /// Adds the dot product of four signed bytes to each lane.
    #[inline]
    #[target_feature(enable = "neon")]
    fn dot4_neon(sum: QuadInt, left: QuadInt, right: QuadInt) -> QuadInt {
        let (left, right) = (vreinterpretq_s8_s32(left), vreinterpretq_s8_s32(right));
        let low = vmull_s8(vget_low_s8(left), vget_low_s8(right));
        let high = vmull_high_s8(left, right);
        vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod array {
    pub(in super::super) type Quad = [f32; 4];
    pub(in super::super) type QuadInt = [i32; 4];

    /// Functions that do the same in each lane.
    macro_rules! lanewise {
        ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $lane:expr;)*) => {
            $(
                #[inline(always)]
                pub(in super::super) fn $name($($argument: $type),*) -> $result {
                    std::array::from_fn(|lane| { $(let $argument = $argument[lane];)* $lane })
                }
            )*
        };
    }

    lanewise! {
        add(a: Quad, b: Quad) -> Quad = a + b;
        sub(a: Quad, b: Quad) -> Quad = a - b;
        mul(a: Quad, b: Quad) -> Quad = a * b;
        div(a: Quad, b: Quad) -> Quad = a / b;
        fma(a: Quad, b: Quad, c: Quad) -> Quad = a * b + c;
        max(a: Quad, b: Quad) -> Quad = if a > b { a } else { b };
        min(a: Quad, b: Quad) -> Quad = if a < b { a } else { b };
        add_int(a: QuadInt, b: QuadInt) -> QuadInt = a.wrapping_add(b);
        to_float(a: QuadInt) -> Quad = a as f32;
        dot4(sum: QuadInt, left: QuadInt, right: QuadInt) -> QuadInt =
            sum.wrapping_add(dot_bytes(left, right));
    }

    #[inline(always)]
    pub(in super::super) fn splat(value: f32) -> Quad {
        [value; 4]
    }

    #[inline(always)]
    pub(in super::super) fn splat_int(value: i32) -> QuadInt {
        [value; 4]
    }

    /// Dot product of the four signed bytes of two words.
    #[inline(always)]
    fn dot_bytes(left: i32, right: i32) -> i32 {
        let [left, right] = [left.to_le_bytes(), right.to_le_bytes()];
        let mut sum = 0;
        for i in 0..4 {
            sum += i32::from(left[i] as i8) * i32::from(right[i] as i8);
        }
        sum
    }
}
