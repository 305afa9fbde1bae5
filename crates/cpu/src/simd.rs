//! Vector operations, compiled once per instruction set.
//!
//! A kernel is a [`Kernel`]: a struct of arguments whose `run` is generic over [`Simd`]. [`dispatch`] enters a function
//! compiled for the chosen instruction set and calls `run` there with a token of that set. A token exists only on a
//! machine that has the instructions, which is why the arithmetic methods of [`Simd`] are safe.
//!
//! Everything between `dispatch` and the intrinsics must be `#[inline(always)]` (and closures must be avoided): code that
//! is not inlined is compiled for the baseline instruction set and is an order of magnitude slower.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod native;
mod portable;
mod powers;
mod widening;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512 F, BW, DQ, VL and VNNI: 16 lanes, 32 registers.
    Avx512,
    /// AVX2, FMA and F16C: 8 lanes, 16 registers.
    Avx2,
    /// Plain Rust over arrays of 8, vectorised by the compiler for the baseline of the target (SSE2, NEON, ...).
    Portable,
}

impl Isa {
    /// Every instruction set, widest first.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// The widest instruction set of this machine.
    pub fn detect() -> Isa {
        Isa::Avx512.or_available()
    }

    /// The instruction sets of this machine, widest first. Never empty: `Portable` is always there.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this machine has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::<false>::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
        }
    }

    /// This set where the machine has it, else the next narrower one that it has. This is the set that [`dispatch`] uses.
    pub fn or_available(self) -> Isa {
        let narrower = match self {
            Isa::Avx512 => Isa::Avx2,
            Isa::Avx2 | Isa::Portable => Isa::Portable,
        };
        if self.is_available() { self } else { narrower.or_available() }
    }

    /// Name for people and for packed forms of weights.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Lanes of an `f32` vector.
    pub const fn lanes(self) -> usize {
        match self {
            Isa::Avx512 => 16,
            Isa::Avx2 | Isa::Portable => 8,
        }
    }
}

/// Lanes of the widest `f32` vector of any instruction set.
pub const MAX_LANES: usize = 16;

/// `0, 1, 2, ...`: the number of each lane.
pub(crate) static LANE_NUMBERS: [f32; MAX_LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Whether to use non-temporal stores for an output of `count` floats: from 32 MiB on, the caches could not keep it for the next
/// reader.
pub(crate) fn prefers_streaming(count: usize) -> bool {
    count >= 8 << 20
}

/// A computation written once for every instruction set. Implementations of `run` are `#[inline(always)]`.
pub trait Kernel {
    /// What the computation returns.
    type Output;
    /// Computes with the instructions of `S`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs `kernel` compiled for `isa`, or for the next narrower set where this machine lacks `isa`.
#[inline]
pub fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if isa == Isa::Avx512
            && let Some(simd) = avx512::Avx512::<false>::detect()
        {
            return simd.vectorize(kernel);
        }
        if isa != Isa::Portable
            && let Some(simd) = avx2::Avx2::detect()
        {
            return simd.vectorize(kernel);
        }
    }
    let _ = isa;
    portable::Portable.vectorize(kernel)
}

/// Like [`dispatch`], for kernels that use [`Simd::dot2`]: compiled with its instruction where `isa` is AVX-512 and the machine has it.
#[inline]
pub fn dispatch_dots<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512
        && let Some(simd) = avx512::Avx512::<true>::detect()
    {
        return simd.vectorize(kernel);
    }
    dispatch(isa, kernel)
}

/// Whether [`Simd::dot2`] is one instruction in kernels that [`dispatch_dots`] runs.
pub fn has_bf16_dots(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        return avx512::Avx512::<true>::detect().is_some();
    }
    let _ = isa;
    false
}

/// Rows that [`Simd::interleave`] transposes into a panel.
#[derive(Clone, Copy, Debug)]
pub struct Interleave<'a> {
    /// Address of each row, at most `Simd::LANES` of them.
    pub rows: &'a [*const f32],
    /// The first element to read of each row.
    pub column: usize,
    /// Elements from one column to the next in `out`.
    pub panel_rows: usize,
    /// Address of the panel.
    pub out: *mut f32,
}

/// The operations of one instruction set on vectors of `f32` and `i32`.
///
/// A value of the implementing type is proof that the machine has the instructions; safe code obtains one only inside
/// [`Kernel::run`]. Arithmetic is IEEE single precision, rounding to nearest; only [`Simd::fma`] differs between sets
/// (the portable one may round twice).
pub trait Simd: Copy + Send + Sync + sealed::Sealed {
    /// Vector of `LANES` values of `f32`.
    type F: Copy;
    /// Vector of `LANES` values of `i32`.
    type I: Copy;
    /// One truth value per lane.
    type M: Copy;
    /// The instruction set.
    const ISA: Isa;
    /// Lanes of every vector.
    const LANES: usize;
    /// Offset that must be added to the signed left-hand bytes of [`Simd::dot4`].
    const DOT_OFFSET: i32;

    /// Calls `kernel` as a separate function compiled with this set's instructions. Kernels use it to split themselves into
    /// functions that the compiler optimises well.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::F;
    /// The first `LANES` elements; panics on a shorter slice.
    #[inline(always)]
    fn load(self, source: &[f32]) -> Self::F {
        assert!(source.len() >= Self::LANES);
        // SAFETY: the slice has at least `LANES` elements.
        unsafe { self.load_pointer(source.as_ptr()) }
    }
    /// Writes the first `LANES` elements; panics on a shorter slice.
    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32]) {
        assert!(target.len() >= Self::LANES);
        // SAFETY: the slice has at least `LANES` elements and is borrowed exclusively.
        unsafe { self.store_pointer(value, target.as_mut_ptr()) }
    }
    /// The first elements of the slice, at most `LANES`; zero in the other lanes.
    #[inline(always)]
    fn load_partial(self, source: &[f32]) -> Self::F {
        // SAFETY: the slice has at least the number of elements that are read.
        unsafe { self.load_partial_pointer(source.as_ptr(), source.len().min(Self::LANES)) }
    }
    /// Writes the first lanes over the slice, at most `LANES`.
    #[inline(always)]
    fn store_partial(self, value: Self::F, target: &mut [f32]) {
        let count = target.len().min(Self::LANES);
        // SAFETY: the slice has at least `count` elements and is borrowed exclusively.
        unsafe { self.store_partial_pointer(value, target.as_mut_ptr(), count) }
    }
    /// Reads `LANES` elements.
    ///
    /// # Safety
    /// `source` is valid for reading `LANES` elements.
    unsafe fn load_pointer(self, source: *const f32) -> Self::F;
    /// Writes `LANES` elements.
    ///
    /// # Safety
    /// `target` is valid for writing `LANES` elements.
    unsafe fn store_pointer(self, value: Self::F, target: *mut f32);
    /// Writes `LANES` elements with a non-temporal store, for outputs far larger than the caches. Weakly ordered: call
    /// [`Simd::fence`] before another thread reads them.
    ///
    /// # Safety
    /// `target` is valid for writing `LANES` elements and aligned to `4 * LANES` bytes.
    unsafe fn store_streaming(self, value: Self::F, target: *mut f32);
    /// Orders earlier streaming stores before later stores.
    fn fence(self);
    /// Reads `count <= LANES` elements, touching no other memory; zero in the other lanes.
    ///
    /// # Safety
    /// `source` is valid for reading `count` elements.
    unsafe fn load_partial_pointer(self, source: *const f32, count: usize) -> Self::F;
    /// Writes the first `count <= LANES` lanes, touching no other memory.
    ///
    /// # Safety
    /// `target` is valid for writing `count` elements.
    unsafe fn store_partial_pointer(self, value: Self::F, target: *mut f32, count: usize);
    /// Prefetches the cache line of `address`; any address is allowed.
    fn prefetch(self, address: *const f32);
    /// Prefetches the cache line of `address` into the L2 cache; any address is allowed.
    fn prefetch_second_level(self, address: *const f32);

    /// `a + b`
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine has the instruction.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `-a`
    fn neg(self, a: Self::F) -> Self::F;
    /// The larger; `b` if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` if either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The magnitude.
    fn abs(self, a: Self::F) -> Self::F;
    /// The square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// The nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// The largest integer that is not above.
    fn floor(self, a: Self::F) -> Self::F;
    /// The magnitude of `a` with the sign of `sign`.
    #[inline(always)]
    fn copy_sign(self, a: Self::F, sign: Self::F) -> Self::F {
        let magnitude = self.and_int(self.bits(a), self.splat_int(i32::MAX));
        let sign = self.and_int(self.bits(sign), self.splat_int(i32::MIN));
        self.from_bits(self.or_int(magnitude, sign))
    }

    /// `a < b`, false where either is NaN.
    fn less(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`, false where either is NaN.
    fn less_equal(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`, false where either is NaN.
    fn equal(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a` where the mask is true, else `b`.
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// Sum of the lanes, in an order that depends on the instruction set only.
    fn reduce_sum(self, a: Self::F) -> f32;
    /// The largest lane. Unspecified which lane wins if one is NaN.
    fn reduce_max(self, a: Self::F) -> f32;

    /// `value` in every lane.
    fn splat_int(self, value: i32) -> Self::I;
    /// Reads `LANES` integers.
    ///
    /// # Safety
    /// `source` is valid for reading `LANES` elements.
    unsafe fn load_int_pointer(self, source: *const i32) -> Self::I;
    /// Writes `LANES` integers.
    ///
    /// # Safety
    /// `target` is valid for writing `LANES` elements.
    unsafe fn store_int_pointer(self, value: Self::I, target: *mut i32);
    /// Writes the low byte of each lane.
    ///
    /// # Safety
    /// `target` is valid for writing `LANES` bytes.
    unsafe fn store_low_bytes(self, value: Self::I, target: *mut u8);
    /// Writes the low byte of `value + offset` for each lane of four vectors, one after the other. Values are within -128..=127.
    ///
    /// # Safety
    /// `target` is valid for writing `4 * LANES` bytes.
    #[inline(always)]
    unsafe fn store_bytes(self, values: [Self::I; 4], offset: i32, target: *mut u8) {
        for (index, value) in values.into_iter().enumerate() {
            let value = self.add_int(value, self.splat_int(offset));
            // SAFETY: the caller vouches for `LANES` bytes for each vector.
            unsafe { self.store_low_bytes(value, target.wrapping_add(index * Self::LANES)) };
        }
    }
    /// `a + b`, wrapping.
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// The larger, as signed integers.
    fn max_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bits set in both.
    fn and_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bits set in either.
    fn or_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shift to the left by `bits < 32`.
    fn shift_left(self, a: Self::I, bits: u32) -> Self::I;
    /// Arithmetic shift to the right by `bits < 32`.
    fn shift_right(self, a: Self::I, bits: u32) -> Self::I;
    /// The largest lane.
    fn reduce_max_int(self, a: Self::I) -> i32;
    /// The nearest integer, ties to even. Unspecified outside the range of `i32` and for NaN.
    fn to_int(self, a: Self::F) -> Self::I;
    /// The nearest float.
    fn to_float(self, a: Self::I) -> Self::F;
    /// The bit patterns.
    fn bits(self, a: Self::F) -> Self::I;
    /// The floats with these bit patterns.
    #[expect(clippy::wrong_self_convention, reason = "`self` is the token, not the operand")]
    fn from_bits(self, a: Self::I) -> Self::F;
    /// Adds to each lane the dot product of its four bytes of `left` and of `right`, exactly, wrapping at 32 bits.
    ///
    /// `right` holds signed bytes. `left` holds signed bytes of magnitude at most 127 to which [`Simd::DOT_OFFSET`] was
    /// added, wrapping at 8 bits; the caller corrects for that offset.
    fn dot4(self, sum: Self::I, left: Self::I, right: Self::I) -> Self::I;
    /// Adds to each lane the dot product of its four unsigned bytes of `left` and its four signed bytes of `right`, exactly, wrapping at
    /// 32 bits. One instruction with AVX-512, about thirty elsewhere.
    #[inline(always)]
    fn dot4_unsigned(self, sum: Self::I, left: Self::I, right: Self::I) -> Self::I {
        widening::widening_dot4(self, sum, left, right)
    }

    /// The bytes `round(255 · 2^(score - origin))` of four vectors of scores that are not above the origin: those of the first vector in
    /// the lowest place of each lane. Products within 0.1 of the middle of two integers may round to either. The second result is NaN
    /// in the lanes where a score or the origin is NaN, and in no other.
    #[inline(always)]
    fn byte_powers(self, scores: [Self::F; 4], origin: Self::F) -> (Self::I, Self::F) {
        powers::byte_powers(self, scores, origin)
    }
    /// Adds to each lane its four unsigned bytes.
    #[inline(always)]
    fn add_bytes(self, sum: Self::I, bytes: Self::I) -> Self::I {
        powers::add_bytes(self, sum, bytes)
    }

    /// Adds to each lane the dot product of its two bf16 of `left` and of `right`. The rounding in between depends on the
    /// machine; denormal numbers may count as zero.
    #[inline(always)]
    fn dot2(self, sum: Self::F, left: Self::I, right: Self::I) -> Self::F {
        widening::widening_dot2(self, sum, left, right)
    }
    /// Each lane rounded to bf16, to nearest even, as `f32`.
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        let rounded = widening::rounded_to_bf16(self, a);
        self.from_bits(self.and_int(rounded, self.splat_int(!0xFFFF)))
    }
    /// Rounds to bf16, to nearest even: `low` in the lower half of each lane, `high` in the upper one.
    #[inline(always)]
    fn pair_bf16(self, low: Self::F, high: Self::F) -> Self::I {
        widening::pair_rounded(self, low, high)
    }
    /// Writes `2 * LANES` elements rounded to bf16: the lanes of `low`, then those of `high`.
    ///
    /// # Safety
    /// `target` is valid for writing `2 * LANES` elements.
    #[inline(always)]
    unsafe fn store_bf16(self, low: Self::F, high: Self::F, target: *mut bf16) {
        // SAFETY: the caller vouches for the elements.
        unsafe { widening::store_rounded(self, low, high, target) };
    }

    /// `target = source`, exactly; panics unless both have the same length.
    #[inline(always)]
    fn widen_f16(self, source: &[f16], target: &mut [f32]) {
        source.convert_to_f32_slice(target);
    }

    /// Transposes a block of `LANES` columns: `out[i * panel_rows + row] = rows[row][column + i]` for `row` below `LANES` and
    /// `panel_rows`, and zero for the rows that are not given.
    ///
    /// # Safety
    /// `rows.len() <= panel_rows`, `column + LANES` elements of each row are readable, and the elements of `out` up to the
    /// last one named above are writable and do not overlap the rows.
    unsafe fn interleave(self, block: Interleave<'_>);

    /// Like [`Simd::interleave`], of rows that have only `count` elements from `column` on; the other columns become zero.
    ///
    /// # Safety
    /// As for [`Simd::interleave`], with `count <= LANES` readable elements of each row.
    #[inline(always)]
    unsafe fn interleave_partial(self, block: Interleave<'_>, count: usize) {
        let mut ends = [0.0; MAX_LANES * MAX_LANES];
        let mut rows = [std::ptr::null(); MAX_LANES];
        for (lane, row) in block.rows.iter().enumerate() {
            // SAFETY: the caller vouches for these elements.
            let end = unsafe { self.load_partial_pointer(row.wrapping_add(block.column), count) };
            let copy = &mut ends[lane * Self::LANES..][..Self::LANES];
            self.store(end, copy);
            rows[lane] = copy.as_ptr();
        }
        let block = Interleave { rows: &rows[..block.rows.len()], column: 0, ..block };
        // SAFETY: each copy has `LANES` elements, and the caller vouches for `out`.
        unsafe { self.interleave(block) };
    }
}

mod sealed {
    /// Seals [`super::Simd`]: a foreign implementation could claim instructions that the machine lacks.
    pub trait Sealed {}
}

#[cfg(test)]
mod tests;
