//! Plain Rust over 8 lanes, which the compiler turns into the target's baseline vectors.

use super::native::{self, QUAD, Quad, QuadInt};
use super::{Interleave, Isa, Kernel, Simd, sealed::Sealed};

const LANES: usize = 2 * QUAD;

/// Always available.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Eight floats.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Floats([Quad; 2]);

/// Eight integers; as a mask, all bits set is true and none is false.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Integers([QuadInt; 2]);

impl Sealed for Portable {}

impl Floats {
    #[inline(always)]
    fn new(lanes: [f32; LANES]) -> Floats {
        // SAFETY: both types are eight floats in memory, and every bit pattern is a float.
        Floats(unsafe { std::mem::transmute::<[f32; LANES], [Quad; 2]>(lanes) })
    }

    #[inline(always)]
    fn lanes(self) -> [f32; LANES] {
        // SAFETY: both types are eight floats in memory, and every bit pattern is a float.
        unsafe { std::mem::transmute::<[Quad; 2], [f32; LANES]>(self.0) }
    }
}

impl Integers {
    #[inline(always)]
    fn new(lanes: [i32; LANES]) -> Integers {
        // SAFETY: both types are eight integers in memory, and every bit pattern is an integer.
        Integers(unsafe { std::mem::transmute::<[i32; LANES], [QuadInt; 2]>(lanes) })
    }

    #[inline(always)]
    fn lanes(self) -> [i32; LANES] {
        // SAFETY: both types are eight integers in memory, and every bit pattern is an integer.
        unsafe { std::mem::transmute::<[QuadInt; 2], [i32; LANES]>(self.0) }
    }
}

/// Methods that work on each half with the target's own instructions.
macro_rules! halves {
    ($($name:ident($($argument:ident: $type:ident),*) -> $result:ident;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $type),*) -> $result {
                $result([native::$name($($argument.0[0]),*), native::$name($($argument.0[1]),*)])
            }
        )*
    };
}

/// Methods that do the same in each lane.
macro_rules! lanewise {
    ($($name:ident($($argument:ident: $type:ident),*) -> $result:ident = $lane:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $type),*) -> $result {
                $(let $argument = $argument.lanes();)*
                let mut result = [Default::default(); LANES];
                for (lane, value) in result.iter_mut().enumerate() {
                    $(let $argument = $argument[lane];)*
                    *value = $lane;
                }
                $result::new(result)
            }
        )*
    };
}

/// All bits for true, none for false.
#[inline(always)]
fn truth(value: bool) -> i32 {
    -i32::from(value)
}

/// The nearest integer, ties to even, without a library call: above 2^23 every float is an integer, below it adding and
/// subtracting 2^23 rounds.
#[inline(always)]
fn round(value: f32) -> f32 {
    const LIMIT: f32 = 8_388_608.0;
    let shift = LIMIT.copysign(value);
    let rounded = ((value + shift) - shift).copysign(value);
    if value.abs() < LIMIT { rounded } else { value }
}

#[inline(always)]
fn floor(value: f32) -> f32 {
    let rounded = round(value);
    if rounded > value { rounded - 1.0 } else { rounded }
}

impl Simd for Portable {
    type F = Floats;
    type I = Integers;
    type M = Integers;
    const ISA: Isa = Isa::Portable;
    const LANES: usize = LANES;
    const DOT_OFFSET: i32 = 0;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        enter(kernel)
    }

    halves! {
        add(a: Floats, b: Floats) -> Floats;
        sub(a: Floats, b: Floats) -> Floats;
        mul(a: Floats, b: Floats) -> Floats;
        div(a: Floats, b: Floats) -> Floats;
        fma(a: Floats, b: Floats, c: Floats) -> Floats;
        max(a: Floats, b: Floats) -> Floats;
        min(a: Floats, b: Floats) -> Floats;
        add_int(a: Integers, b: Integers) -> Integers;
        to_float(a: Integers) -> Floats;
        dot4(sum: Integers, left: Integers, right: Integers) -> Integers;
    }

    lanewise! {
        neg(a: Floats) -> Floats = -a;
        abs(a: Floats) -> Floats = a.abs();
        sqrt(a: Floats) -> Floats = a.sqrt();
        round(a: Floats) -> Floats = round(a);
        floor(a: Floats) -> Floats = floor(a);
        less(a: Floats, b: Floats) -> Integers = truth(a < b);
        less_equal(a: Floats, b: Floats) -> Integers = truth(a <= b);
        equal(a: Floats, b: Floats) -> Integers = truth(a == b);
        select(mask: Integers, a: Floats, b: Floats) -> Floats =
            f32::from_bits((a.to_bits() & mask as u32) | (b.to_bits() & !mask as u32));
        sub_int(a: Integers, b: Integers) -> Integers = a.wrapping_sub(b);
        max_int(a: Integers, b: Integers) -> Integers = a.max(b);
        and_int(a: Integers, b: Integers) -> Integers = a & b;
        or_int(a: Integers, b: Integers) -> Integers = a | b;
        to_int(a: Floats) -> Integers = round(a) as i32;
        bits(a: Floats) -> Integers = a.to_bits() as i32;
        from_bits(a: Integers) -> Floats = f32::from_bits(a as u32);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        Floats([native::splat(value); 2])
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> Integers {
        Integers([native::splat_int(value); 2])
    }

    #[inline(always)]
    fn shift_left(self, a: Integers, bits: u32) -> Integers {
        Integers::new(a.lanes().map(|lane| lane << bits))
    }

    #[inline(always)]
    fn shift_right(self, a: Integers, bits: u32) -> Integers {
        Integers::new(a.lanes().map(|lane| lane >> bits))
    }

    #[inline(always)]
    fn reduce_sum(self, a: Floats) -> f32 {
        let a = a.lanes();
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    #[inline(always)]
    fn reduce_max(self, a: Floats) -> f32 {
        a.lanes().into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn reduce_max_int(self, a: Integers) -> i32 {
        a.lanes().into_iter().fold(i32::MIN, i32::max)
    }

    #[inline(always)]
    unsafe fn load_pointer(self, source: *const f32) -> Floats {
        // SAFETY: the caller vouches for 8 readable elements.
        Floats(unsafe { source.cast::<[Quad; 2]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store_pointer(self, value: Floats, target: *mut f32) {
        // SAFETY: the caller vouches for 8 writable elements.
        unsafe { target.cast::<[Quad; 2]>().write_unaligned(value.0) }
    }

    #[inline(always)]
    unsafe fn store_streaming(self, value: Floats, target: *mut f32) {
        // SAFETY: the caller vouches for 8 writable elements.
        unsafe { self.store_pointer(value, target) }
    }

    #[inline(always)]
    fn fence(self) {}

    #[inline(always)]
    unsafe fn load_partial_pointer(self, source: *const f32, count: usize) -> Floats {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller vouches for `count` readable elements, which are outside of `lanes`.
        unsafe { source.copy_to_nonoverlapping(lanes.as_mut_ptr(), count.min(LANES)) };
        Floats::new(lanes)
    }

    #[inline(always)]
    unsafe fn store_partial_pointer(self, value: Floats, target: *mut f32, count: usize) {
        // SAFETY: the caller vouches for `count` writable elements, which are outside of `value`.
        unsafe { target.copy_from_nonoverlapping(value.lanes().as_ptr(), count.min(LANES)) }
    }

    #[inline(always)]
    fn prefetch(self, _address: *const f32) {}

    #[inline(always)]
    fn prefetch_second_level(self, _address: *const f32) {}

    #[inline(always)]
    unsafe fn load_int_pointer(self, source: *const i32) -> Integers {
        // SAFETY: the caller vouches for 8 readable elements.
        Integers(unsafe { source.cast::<[QuadInt; 2]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store_int_pointer(self, value: Integers, target: *mut i32) {
        // SAFETY: the caller vouches for 8 writable elements.
        unsafe { target.cast::<[QuadInt; 2]>().write_unaligned(value.0) }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, value: Integers, target: *mut u8) {
        let bytes = value.lanes().map(|lane| lane as u8);
        // SAFETY: the caller vouches for 8 writable bytes.
        unsafe { target.cast::<[u8; LANES]>().write_unaligned(bytes) }
    }

    #[inline(always)]
    unsafe fn interleave(self, block: Interleave<'_>) {
        for row in 0..block.panel_rows.min(LANES) {
            for column in 0..LANES {
                let mut value = 0.0;
                if let Some(start) = block.rows.get(row) {
                    let source = start.wrapping_add(block.column + column);
                    // SAFETY: the caller vouches for 8 readable elements from `column` on.
                    value = unsafe { source.read() };
                }
                let target = block.out.wrapping_add(column * block.panel_rows + row);
                // SAFETY: inside the block that the caller vouches for.
                unsafe { target.write(value) };
            }
        }
    }
}

#[inline(never)]
fn enter<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Portable)
}
