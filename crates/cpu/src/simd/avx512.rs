//! AVX-512: 16 lanes, mask registers.

mod byte_powers;

use std::arch::x86_64::*;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::widening::{rounded_to_bf16, widening_dot2};
use super::{Interleave, Isa, Kernel, Simd, sealed::Sealed};

/// Proof that the machine has AVX-512 F, BW, DQ, VL and VNNI, and FMA; with `BF16`, also AVX-512 BF16.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const BF16: bool>(());

impl Avx512<false> {
    /// The proof, if the machine has the instructions.
    #[inline]
    pub(super) fn detect() -> Option<Avx512<false>> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma");
        found.then_some(Avx512(()))
    }

    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}

impl Avx512<true> {
    /// The proof, if the machine has the instructions.
    #[inline]
    pub(super) fn detect() -> Option<Avx512<true>> {
        let found = is_x86_feature_detected!("avx512bf16");
        Avx512::<false>::detect().filter(|_| found).map(|_| Avx512(()))
    }

    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}

/// What differs between the two sets.
pub(super) trait Level: Copy + Send + Sync {
    /// See [`Simd::vectorize`].
    fn call<K: Kernel>(self, kernel: K) -> K::Output;
    /// See [`Simd::dot2`].
    fn dot_pairs(self, sum: __m512, left: __m512i, right: __m512i) -> __m512;
    /// Rounds to bf16: the lanes of `low`, then those of `high`.
    fn halves(self, low: __m512, high: __m512) -> __m512i;
}

impl Level for Avx512<false> {
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` is proof that the machine has every feature that `enter` enables.
        unsafe { self.enter(kernel) }
    }

    #[inline(always)]
    fn dot_pairs(self, sum: __m512, left: __m512i, right: __m512i) -> __m512 {
        widening_dot2(self, sum, left, right)
    }

    #[inline(always)]
    fn halves(self, low: __m512, high: __m512) -> __m512i {
        let [low, high] = [low, high].map(|half| {
            let upper = self.shift_right(rounded_to_bf16(self, half), 16);
            // SAFETY: `self` is proof that the machine has the instruction.
            unsafe { _mm512_cvtepi32_epi16(upper) }
        });
        // SAFETY: as above.
        let low = unsafe { _mm512_castsi256_si512(low) };
        // SAFETY: as above.
        unsafe { _mm512_inserti64x4::<1>(low, high) }
    }
}

impl Level for Avx512<true> {
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` is proof that the machine has every feature that `enter` enables.
        unsafe { self.enter(kernel) }
    }

    #[inline(always)]
    fn dot_pairs(self, sum: __m512, left: __m512i, right: __m512i) -> __m512 {
        // SAFETY: both types are 512 bits, and every bit pattern is a vector of bf16.
        let [left, right] =
            [left, right].map(|pairs| unsafe { std::mem::transmute::<__m512i, __m512bh>(pairs) });
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_dpbf16_ps(sum, left, right) }
    }

    #[inline(always)]
    fn halves(self, low: __m512, high: __m512) -> __m512i {
        // SAFETY: `self` is proof that the machine has the instruction.
        let halves = unsafe { _mm512_cvtne2ps_pbh(high, low) };
        // SAFETY: both types are 512 bits, and every bit pattern is a vector of integers.
        unsafe { std::mem::transmute::<__m512bh, __m512i>(halves) }
    }
}

impl<const BF16: bool> Sealed for Avx512<BF16> {}

/// Order of 16-bit lanes that turns two halves into pairs: `0, 16, 1, 17, ..`.
static PAIRS: [u16; 32] = {
    let mut order = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        order[lane] = (lane / 2 + lane % 2 * 16) as u16;
        lane += 1;
    }
    order
};

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

/// The lowest `count <= 16` lanes.
#[inline(always)]
fn lanes_below(count: usize) -> __mmask16 {
    debug_assert!(count <= 16);
    ((1u32 << count) - 1) as __mmask16
}

impl<const BF16: bool> Simd for Avx512<BF16>
where
    Avx512<BF16>: Level,
{
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    const ISA: Isa = Isa::Avx512;
    const LANES: usize = 16;
    const DOT_OFFSET: i32 = 128;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        self.call(kernel)
    }

    #[inline(always)]
    fn dot2(self, sum: __m512, left: __m512i, right: __m512i) -> __m512 {
        self.dot_pairs(sum, left, right)
    }

    #[inline(always)]
    fn pair_bf16(self, low: __m512, high: __m512) -> __m512i {
        // SAFETY: the table has 64 bytes, and `self` is proof that the machine has the instruction.
        let order = unsafe { _mm512_loadu_si512(PAIRS.as_ptr().cast()) };
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_permutexvar_epi16(order, self.halves(low, high)) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, low: __m512, high: __m512, target: *mut bf16) {
        // SAFETY: the caller vouches for 32 writable elements, `self` for the instruction.
        unsafe { _mm512_storeu_si512(target.cast(), self.halves(low, high)) }
    }

    #[inline(always)]
    fn byte_powers(self, scores: [__m512; 4], origin: __m512) -> (__m512i, __m512) {
        byte_powers::byte_powers(self, scores, origin)
    }

    #[inline(always)]
    fn add_bytes(self, sum: __m512i, bytes: __m512i) -> __m512i {
        self.dot4_unsigned(sum, bytes, self.splat_int(0x0101_0101))
    }

    intrinsics! {
        splat(value: f32) -> __m512 = _mm512_set1_ps;
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps;
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps;
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps;
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps;
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps;
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps;
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps;
        abs(a: __m512) -> __m512 = _mm512_abs_ps;
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps;
        round(a: __m512) -> __m512 =
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>;
        floor(a: __m512) -> __m512 =
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>;
        less(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>;
        less_equal(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LE_OQ>;
        equal(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>;
        reduce_sum(a: __m512) -> f32 = _mm512_reduce_add_ps;
        reduce_max(a: __m512) -> f32 = _mm512_reduce_max_ps;
        splat_int(value: i32) -> __m512i = _mm512_set1_epi32;
        add_int(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32;
        sub_int(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32;
        max_int(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32;
        and_int(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512;
        or_int(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512;
        reduce_max_int(a: __m512i) -> i32 = _mm512_reduce_max_epi32;
        to_int(a: __m512) -> __m512i = _mm512_cvtps_epi32;
        to_float(a: __m512i) -> __m512 = _mm512_cvtepi32_ps;
        bits(a: __m512) -> __m512i = _mm512_castps_si512;
        from_bits(a: __m512i) -> __m512 = _mm512_castsi512_ps;
        dot4(sum: __m512i, left: __m512i, right: __m512i) -> __m512i = _mm512_dpbusd_epi32;
        dot4_unsigned(sum: __m512i, left: __m512i, right: __m512i) -> __m512i = _mm512_dpbusd_epi32;
    }

    #[inline(always)]
    fn neg(self, a: __m512) -> __m512 {
        let sign = self.splat(-0.0);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_xor_ps(a, sign) }
    }

    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }

    #[inline(always)]
    fn shift_left(self, a: __m512i, bits: u32) -> __m512i {
        let bits = self.splat_int(bits as i32);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_sllv_epi32(a, bits) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m512i, bits: u32) -> __m512i {
        let bits = self.splat_int(bits as i32);
        // SAFETY: `self` is proof that the machine has the instruction.
        unsafe { _mm512_srav_epi32(a, bits) }
    }

    #[inline(always)]
    unsafe fn load_pointer(self, source: *const f32) -> __m512 {
        // SAFETY: the caller vouches for 16 readable elements, `self` for the instruction.
        unsafe { _mm512_loadu_ps(source) }
    }

    #[inline(always)]
    unsafe fn store_pointer(self, value: __m512, target: *mut f32) {
        // SAFETY: the caller vouches for 16 writable elements, `self` for the instruction.
        unsafe { _mm512_storeu_ps(target, value) }
    }

    #[inline(always)]
    unsafe fn store_streaming(self, value: __m512, target: *mut f32) {
        // SAFETY: the caller vouches for 16 writable elements at a multiple of 64 bytes, `self` for the instruction.
        unsafe { _mm512_stream_ps(target, value) }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: part of SSE, the baseline of the target; it accesses no memory.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn load_partial_pointer(self, source: *const f32, count: usize) -> __m512 {
        // SAFETY: the caller vouches for `count` readable elements and masked lanes are not accessed.
        unsafe { _mm512_maskz_loadu_ps(lanes_below(count), source) }
    }

    #[inline(always)]
    unsafe fn store_partial_pointer(self, value: __m512, target: *mut f32, count: usize) {
        // SAFETY: the caller vouches for `count` writable elements and masked lanes are not accessed.
        unsafe { _mm512_mask_storeu_ps(target, lanes_below(count), value) }
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
    unsafe fn load_int_pointer(self, source: *const i32) -> __m512i {
        // SAFETY: the caller vouches for 16 readable elements, `self` for the instruction.
        unsafe { _mm512_loadu_si512(source.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int_pointer(self, value: __m512i, target: *mut i32) {
        // SAFETY: the caller vouches for 16 writable elements, `self` for the instruction.
        unsafe { _mm512_storeu_si512(target.cast(), value) }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, value: __m512i, target: *mut u8) {
        // SAFETY: `self` is proof that the machine has the instruction.
        let bytes = unsafe { _mm512_cvtepi32_epi8(value) };
        // SAFETY: the caller vouches for 16 writable bytes.
        unsafe { _mm_storeu_si128(target.cast(), bytes) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, values: [__m512i; 4], offset: i32, target: *mut u8) {
        // SAFETY: `self` is proof that the machine has the instructions.
        let bytes = unsafe { joined_bytes(values, offset as i8) };
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe { _mm512_storeu_si512(target.cast(), bytes) }
    }

    #[inline(always)]
    fn widen_f16(self, source: &[f16], target: &mut [f32]) {
        assert_eq!(source.len(), target.len());
        let whole = source.len() - source.len() % 16;
        for start in (0..whole).step_by(16) {
            // SAFETY: the slice has 16 elements from `start` on, each of 16 bits.
            let halves = unsafe { _mm256_loadu_si256(source[start..][..16].as_ptr().cast()) };
            // SAFETY: `self` is proof that the machine has the instruction.
            let values = unsafe { _mm512_cvtph_ps(halves) };
            self.store(values, &mut target[start..]);
        }
        source[whole..].convert_to_f32_slice(&mut target[whole..]);
    }

    #[inline(always)]
    unsafe fn interleave(self, block: Interleave<'_>) {
        // SAFETY: the caller vouches for whole vectors.
        unsafe { self.interleave_partial(block, 16) };
    }

    #[inline(always)]
    unsafe fn interleave_partial(self, block: Interleave<'_>, count: usize) {
        let mut rows = [self.splat(0.0); 16];
        // A loop of known length, so that the rows stay in registers.
        for (index, row) in rows.iter_mut().enumerate() {
            if let Some(start) = block.rows.get(index) {
                // SAFETY: the caller vouches for `count` readable elements from `column` on.
                *row =
                    unsafe { self.load_partial_pointer(start.wrapping_add(block.column), count) };
            }
        }
        // SAFETY: `self` is proof that the machine has the instructions.
        let columns = unsafe { transpose(rows) };
        // A whole vector may reach into the next column, which is written afterwards, but not beyond the block.
        let width = block.panel_rows.min(16);
        let end = 15 * block.panel_rows + width;
        for (index, column) in columns.into_iter().enumerate() {
            let target = block.out.wrapping_add(index * block.panel_rows);
            if index * block.panel_rows + 16 <= end {
                // SAFETY: this ends inside the block that the caller vouches for.
                unsafe { self.store_pointer(column, target) };
            } else {
                // SAFETY: these are the `width` elements of one column of the block.
                unsafe { self.store_partial_pointer(column, target, width) };
            }
        }
    }
}

/// The lanes of four vectors as bytes, one vector after the other, with `offset` added. Three instructions narrow them and one sorts them;
/// narrowing each vector alone would take two instructions for each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn joined_bytes([a, b, c, d]: [__m512i; 4], offset: i8) -> __m512i {
    // Within each 128 bits, packing puts four bytes of `a` before four of `b`, `c` and `d`.
    let packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_add_epi8(_mm512_permutexvar_epi32(order, packed), _mm512_set1_epi8(offset))
}

/// Transposes a matrix of 16 by 16, one row per vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [__m512; 16]) -> [__m512; 16] {
    let mut pairs = rows;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // After this, `quads[4 * g + c]` holds, in each 128-bit quarter `q`, column `4 * q + c` of rows `4 * g .. 4 * g + 4`.
    let mut quads = pairs;
    for g in 0..4 {
        for half in 0..2 {
            let low = pairs[4 * g + half];
            let high = pairs[4 * g + 2 + half];
            quads[4 * g + 2 * half] = _mm512_shuffle_ps::<0b01_00_01_00>(low, high);
            quads[4 * g + 2 * half + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(low, high);
        }
    }
    let mut columns = quads;
    for c in 0..4 {
        let even_low = _mm512_shuffle_f32x4::<0b10_00_10_00>(quads[c], quads[4 + c]);
        let odd_low = _mm512_shuffle_f32x4::<0b11_01_11_01>(quads[c], quads[4 + c]);
        let even_high = _mm512_shuffle_f32x4::<0b10_00_10_00>(quads[8 + c], quads[12 + c]);
        let odd_high = _mm512_shuffle_f32x4::<0b11_01_11_01>(quads[8 + c], quads[12 + c]);
        columns[c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_low, even_high);
        columns[4 + c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_low, odd_high);
        columns[8 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_low, even_high);
        columns[12 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_low, odd_high);
    }
    columns
}
