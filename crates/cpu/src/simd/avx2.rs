//! AVX2 with FMA and F16C: 8 lanes, masks as vectors.

use std::arch::x86_64::*;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::{Interleave, Isa, Kernel, Simd, sealed::Sealed};

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, if the machine has the instructions.
    #[inline]
    pub(super) fn detect() -> Option<Avx2> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Avx2(()))
    }

    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}

impl Sealed for Avx2 {}

/// Methods that are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $intrinsic:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $type),*) -> $result {
                // SAFETY: `self` is proof that the machine has the instruction.
                unsafe { $intrinsic($($argument),*) }
            }
        )*
    };
}

/// Eight true lanes, then eight false ones: a window of 8 that starts at `8 - n` has its first `n` lanes true.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The lowest `count <= 8` lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes_below(count: usize) -> __m256i {
    let window: &[i32] = &MASKS[8 - count.min(8)..][..8];
    // SAFETY: the window has 8 elements.
    unsafe { _mm256_loadu_si256(window.as_ptr().cast()) }
}

/// Combines the lanes pairwise down to one.
macro_rules! reduce {
    ($vector:expr, $half:expr, $combine:ident) => {{
        let pairs = $combine($half, _mm256_extractf128_ps::<1>($vector));
        let swapped = $combine(pairs, _mm_movehl_ps(pairs, pairs));
        _mm_cvtss_f32($combine(swapped, _mm_shuffle_ps::<0b01>(swapped, swapped)))
    }};
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_lanes(a: __m256) -> f32 {
    reduce!(a, _mm256_castps256_ps128(a), _mm_add_ps)
}

#[inline]
#[target_feature(enable = "avx2")]
fn max_of_lanes(a: __m256) -> f32 {
    reduce!(a, _mm256_castps256_ps128(a), _mm_max_ps)
}

#[inline]
#[target_feature(enable = "avx2")]
fn max_of_int_lanes(a: __m256i) -> i32 {
    let quads = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
    let pairs = _mm_max_epi32(quads, _mm_shuffle_epi32::<0b11_10>(quads));
    _mm_cvtsi128_si32(_mm_max_epi32(pairs, _mm_shuffle_epi32::<0b01>(pairs)))
}

/// The lowest byte of each lane, in the low eight bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn low_bytes(a: __m256i) -> __m128i {
    let bytes = _mm256_and_si256(a, _mm256_set1_epi32(255));
    let words =
        _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
    _mm_packus_epi16(words, words)
}

/// Four products of signed bytes per lane. `vpmaddubsw` saturates at 16 bits; magnitudes up to 128 and 127 cannot reach
/// that (`2 * 128 * 127 < 32768`), so the sign of `right` is moved onto `left`.
#[inline]
#[target_feature(enable = "avx2")]
fn dot4_signed(sum: __m256i, left: __m256i, right: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(right), _mm256_sign_epi8(left, right));
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    type M = __m256;
    const ISA: Isa = Isa::Avx2;
    const LANES: usize = 8;
    const DOT_OFFSET: i32 = 0;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` is proof that the machine has every feature that `enter` enables.
        unsafe { self.enter(kernel) }
    }

    intrinsics! {
        splat(value: f32) -> __m256 = _mm256_set1_ps;
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps;
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps;
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps;
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps;
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps;
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps;
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps;
        sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps;
        round(a: __m256) -> __m256 =
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>;
        floor(a: __m256) -> __m256 = _mm256_floor_ps;
        less(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LT_OQ>;
        less_equal(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LE_OQ>;
        equal(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_EQ_OQ>;
        reduce_sum(a: __m256) -> f32 = sum_of_lanes;
        reduce_max(a: __m256) -> f32 = max_of_lanes;
        splat_int(value: i32) -> __m256i = _mm256_set1_epi32;
        add_int(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32;
        sub_int(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32;
        max_int(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epi32;
        and_int(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256;
        or_int(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256;
        reduce_max_int(a: __m256i) -> i32 = max_of_int_lanes;
        to_int(a: __m256) -> __m256i = _mm256_cvtps_epi32;
        to_float(a: __m256i) -> __m256 = _mm256_cvtepi32_ps;
        bits(a: __m256) -> __m256i = _mm256_castps_si256;
        from_bits(a: __m256i) -> __m256 = _mm256_castsi256_ps;
        dot4(sum: __m256i, left: __m256i, right: __m256i) -> __m256i = dot4_signed;
    }

    #[inline(always)]
    fn neg(self, a: __m256) -> __m256 {
        let sign = self.splat(-0.0);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm256_xor_ps(a, sign) }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        let sign = self.splat(-0.0);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm256_andnot_ps(sign, a) }
    }

    #[inline(always)]
    fn select(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm256_blendv_ps(b, a, mask) }
    }

    #[inline(always)]
    fn shift_left(self, a: __m256i, bits: u32) -> __m256i {
        let bits = self.splat_int(bits as i32);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm256_sllv_epi32(a, bits) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m256i, bits: u32) -> __m256i {
        let bits = self.splat_int(bits as i32);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm256_srav_epi32(a, bits) }
    }

    #[inline(always)]
    unsafe fn load_pointer(self, source: *const f32) -> __m256 {
        // SAFETY: the caller vouches for 8 readable elements, `self` for the instruction.
        unsafe { _mm256_loadu_ps(source) }
    }

    #[inline(always)]
    unsafe fn store_pointer(self, value: __m256, target: *mut f32) {
        // SAFETY: the caller vouches for 8 writable elements, `self` for the instruction.
        unsafe { _mm256_storeu_ps(target, value) }
    }

    #[inline(always)]
    unsafe fn store_streaming(self, value: __m256, target: *mut f32) {
        // SAFETY: the caller vouches for 8 writable elements at a multiple of 32 bytes, `self` for the instruction.
        unsafe { _mm256_stream_ps(target, value) }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: part of SSE, the baseline of the target; it accesses no memory.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn load_partial_pointer(self, source: *const f32, count: usize) -> __m256 {
        // SAFETY: `self` is proof that the machine has the instruction.
        let mask = unsafe { lanes_below(count) };
        // SAFETY: the caller vouches for `count` readable elements and masked lanes are not accessed.
        unsafe { _mm256_maskload_ps(source, mask) }
    }

    #[inline(always)]
    unsafe fn store_partial_pointer(self, value: __m256, target: *mut f32, count: usize) {
        // SAFETY: `self` is proof that the machine has the instruction.
        let mask = unsafe { lanes_below(count) };
        // SAFETY: the caller vouches for `count` writable elements and masked lanes are not accessed.
        unsafe { _mm256_maskstore_ps(target, mask, value) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn prefetch_second_level(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    unsafe fn load_int_pointer(self, source: *const i32) -> __m256i {
        // SAFETY: the caller vouches for 8 readable elements, `self` for the instruction.
        unsafe { _mm256_loadu_si256(source.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int_pointer(self, value: __m256i, target: *mut i32) {
        // SAFETY: the caller vouches for 8 writable elements, `self` for the instruction.
        unsafe { _mm256_storeu_si256(target.cast(), value) }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, value: __m256i, target: *mut u8) {
        // SAFETY: `self` is proof that the machine has the instructions.
        let bytes = unsafe { low_bytes(value) };
        // SAFETY: the caller vouches for 8 writable bytes.
        unsafe { _mm_storel_epi64(target.cast(), bytes) }
    }

    #[inline(always)]
    fn widen_f16(self, source: &[f16], target: &mut [f32]) {
        assert_eq!(source.len(), target.len());
        let whole = source.len() - source.len() % 8;
        for start in (0..whole).step_by(8) {
            // SAFETY: the slice has 8 elements from `start` on, each of 16 bits.
            let halves = unsafe { _mm_loadu_si128(source[start..][..8].as_ptr().cast()) };
            // SAFETY: `self` is proof that the machine has the instruction.
            let values = unsafe { _mm256_cvtph_ps(halves) };
            self.store(values, &mut target[start..]);
        }
        source[whole..].convert_to_f32_slice(&mut target[whole..]);
    }

    #[inline(always)]
    unsafe fn interleave(self, block: Interleave<'_>) {
        let mut rows = [self.splat(0.0); 8];
        // A loop of known length, so that the rows stay in registers.
        for (index, row) in rows.iter_mut().enumerate() {
            if let Some(start) = block.rows.get(index) {
                // SAFETY: the caller vouches for 8 readable elements from `column` on.
                *row = unsafe { self.load_pointer(start.wrapping_add(block.column)) };
            }
        }
        // SAFETY: `self` is proof that the machine has the instructions.
        let columns = unsafe { transpose(rows) };
        // A whole vector may reach into the next column, which is written afterwards, but not beyond the block.
        let width = block.panel_rows.min(8);
        let end = 7 * block.panel_rows + width;
        for (index, column) in columns.into_iter().enumerate() {
            let target = block.out.wrapping_add(index * block.panel_rows);
            if index * block.panel_rows + 8 <= end {
                // SAFETY: this ends inside the block that the caller vouches for.
                unsafe { self.store_pointer(column, target) };
            } else {
                // SAFETY: these are the `width` elements of one column of the block.
                unsafe { self.store_partial_pointer(column, target, width) };
            }
        }
    }
}

/// Transposes a matrix of 8 by 8, one row per vector.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    let mut pairs = rows;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    let mut quads = pairs;
    for g in 0..2 {
        for half in 0..2 {
            let low = pairs[4 * g + half];
            let high = pairs[4 * g + 2 + half];
            quads[4 * g + 2 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(low, high);
            quads[4 * g + 2 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(low, high);
        }
    }
    let mut columns = quads;
    for c in 0..4 {
        columns[c] = _mm256_permute2f128_ps::<0x20>(quads[c], quads[4 + c]);
        columns[4 + c] = _mm256_permute2f128_ps::<0x31>(quads[c], quads[4 + c]);
    }
    columns
}
