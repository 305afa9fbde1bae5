use half::{bf16, f16};

use super::*;

mod bytes;

/// Inputs that meet every special case, and a length that is a multiple of every lane count.
fn values() -> Vec<f32> {
    let mut values = vec![0.0, -0.0, 0.5, 1.5, -0.5, -2.5, 8_388_609.0, -1e30, 3.999, -3.2, 1e-40];
    values.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, -1.0]);
    values
}

fn same(found: f32, expected: f32) -> bool {
    found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan())
}

struct Unary(usize, Vec<f32>);

type UnaryCase = (&'static str, fn(f32) -> f32);
type BinaryCase = (&'static str, fn(f32, f32) -> f32);

const UNARY: [UnaryCase; 5] = [
    ("neg", |x| -x),
    ("abs", f32::abs),
    ("sqrt", f32::sqrt),
    ("round", f32::round_ties_even),
    ("floor", f32::floor),
];

impl Kernel for Unary {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Vec<f32> {
        for chunk in self.1.chunks_exact_mut(S::LANES) {
            let a = simd.load(chunk);
            let result = match self.0 {
                0 => simd.neg(a),
                1 => simd.abs(a),
                2 => simd.sqrt(a),
                3 => simd.round(a),
                _ => simd.floor(a),
            };
            simd.store(result, chunk);
        }
        self.1
    }
}

#[test]
fn unary_operations_match_the_scalar_ones() {
    for isa in Isa::available() {
        for (index, (name, scalar)) in UNARY.into_iter().enumerate() {
            let found = dispatch(isa, Unary(index, values()));
            for (x, y) in values().into_iter().zip(found) {
                // The portable rounding of a fraction may lose the sign of a zero.
                let equal = same(y, scalar(x)) || y == scalar(x);
                assert!(equal, "{isa:?}: {name}({x}) = {y}, expected {}", scalar(x));
            }
        }
    }
}

struct Binary(usize, Vec<f32>, Vec<f32>);

const BINARY: [BinaryCase; 10] = [
    ("add", |a, b| a + b),
    ("sub", |a, b| a - b),
    ("mul", |a, b| a * b),
    ("div", |a, b| a / b),
    ("max", |a, b| if a > b { a } else { b }),
    ("min", |a, b| if a < b { a } else { b }),
    ("less", |a, b| if a < b { a } else { b }),
    ("less_equal", |a, b| if a <= b { a } else { b }),
    ("equal", |a, b| if a == b { a } else { b }),
    ("copy_sign", f32::copysign),
];

impl Kernel for Binary {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Vec<f32> {
        for (chunk, other) in self.1.chunks_exact_mut(S::LANES).zip(self.2.chunks(S::LANES)) {
            let (a, b) = (simd.load(chunk), simd.load(other));
            let result = match self.0 {
                0 => simd.add(a, b),
                1 => simd.sub(a, b),
                2 => simd.mul(a, b),
                3 => simd.div(a, b),
                4 => simd.max(a, b),
                5 => simd.min(a, b),
                6 => simd.select(simd.less(a, b), a, b),
                7 => simd.select(simd.less_equal(a, b), a, b),
                8 => simd.select(simd.equal(a, b), a, b),
                _ => simd.copy_sign(a, b),
            };
            simd.store(result, chunk);
        }
        self.1
    }
}

#[test]
fn binary_operations_match_the_scalar_ones() {
    let left = values().repeat(16);
    let mut right = Vec::new();
    for shift in 0..16 {
        let mut rotated = values();
        rotated.rotate_left(shift);
        right.extend(rotated);
    }
    for isa in Isa::available() {
        for (index, (name, scalar)) in BINARY.into_iter().enumerate() {
            let found = dispatch(isa, Binary(index, left.clone(), right.clone()));
            for ((&a, &b), y) in left.iter().zip(&right).zip(found) {
                let expected = scalar(a, b);
                // Which zero is the larger one differs between machines.
                let equal = same(y, expected) || (y == 0.0 && expected == 0.0);
                assert!(equal, "{isa:?}: {name}({a}, {b}) = {y}, expected {expected}");
            }
        }
    }
}

struct Partial<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Partial<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let value = simd.load_partial(self.0);
        simd.store_partial(simd.add(value, simd.splat(1.0)), self.1);
        simd.reduce_sum(value)
    }
}

#[test]
fn partial_loads_and_stores_stay_inside() {
    for isa in Isa::available() {
        for count in 0..=isa.lanes() {
            let source: Vec<f32> = (0..count).map(|i| i as f32).collect();
            let mut target = vec![-7.0; count + 3];
            let sum = dispatch(isa, Partial(&source, &mut target[..count]));
            assert_eq!(sum, source.iter().sum::<f32>(), "{isa:?} {count}");
            assert!(target[..count].iter().enumerate().all(|(i, &x)| x == i as f32 + 1.0));
            assert_eq!(target[count..], [-7.0; 3], "{isa:?} {count}");
        }
    }
}

struct Integers(Vec<i32>);

impl Kernel for Integers {
    type Output = (Vec<i32>, i32, Vec<u8>);
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        assert_eq!(self.0.len(), S::LANES);
        // SAFETY: the vector has `LANES` elements.
        let x = unsafe { simd.load_int_pointer(self.0.as_ptr()) };
        let odd = simd.or_int(simd.and_int(x, simd.splat_int(!3)), simd.splat_int(1));
        let y = simd.sub_int(simd.shift_left(odd, 2), simd.shift_right(x, 1));
        let y = simd.max_int(simd.add_int(y, simd.splat_int(5)), simd.splat_int(-40));
        let mut found = vec![0; S::LANES];
        // SAFETY: the vector has `LANES` elements.
        unsafe { simd.store_int_pointer(y, found.as_mut_ptr()) };
        let mut bytes = vec![0; S::LANES];
        // SAFETY: the vector has `LANES` bytes.
        unsafe { simd.store_low_bytes(x, bytes.as_mut_ptr()) };
        (found, simd.reduce_max_int(x), bytes)
    }
}

#[test]
fn integer_operations_match_the_scalar_ones() {
    for isa in Isa::available() {
        let inputs: Vec<i32> = (0..isa.lanes() as i32).map(|i| (i - 5) * 1003 - i * i).collect();
        let (found, largest, bytes) = dispatch(isa, Integers(inputs.clone()));
        let scalar = |x: i32| ((((x & !3) | 1) << 2) - (x >> 1) + 5).max(-40);
        assert_eq!(found, inputs.iter().map(|&x| scalar(x)).collect::<Vec<_>>(), "{isa:?}");
        assert_eq!(Some(&largest), inputs.iter().max(), "{isa:?}");
        assert_eq!(bytes, inputs.iter().map(|&x| x as u8).collect::<Vec<_>>(), "{isa:?}");
    }
}

struct Dot(i8, i8);

impl Kernel for Dot {
    type Output = i32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> i32 {
        let left = (i32::from(self.0) + S::DOT_OFFSET) as u8;
        let left = simd.splat_int(i32::from_le_bytes([left; 4]));
        let right = simd.splat_int(i32::from_le_bytes([self.1 as u8; 4]));
        let offset = -4 * S::DOT_OFFSET * i32::from(self.1);
        simd.reduce_max_int(simd.dot4(simd.splat_int(offset), left, right))
    }
}

#[test]
fn byte_dot_products_never_saturate() {
    for isa in Isa::available() {
        for left in -127..=127 {
            for right in [-128, -127, -1, 0, 1, 77, 127] {
                let expected = 4 * i32::from(left) * i32::from(right);
                assert_eq!(dispatch(isa, Dot(left, right)), expected, "{isa:?} {left} {right}");
            }
        }
    }
}

/// The four bytes of both operands.
struct UnsignedDot([u8; 4], [i8; 4]);

impl Kernel for UnsignedDot {
    type Output = i32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> i32 {
        let left = simd.splat_int(i32::from_le_bytes(self.0));
        let right = simd.splat_int(i32::from_le_bytes(self.1.map(|byte| byte as u8)));
        simd.reduce_max_int(simd.dot4_unsigned(simd.splat_int(-7), left, right))
    }
}

#[test]
fn dot_products_of_unsigned_bytes_are_exact() {
    let signed = [-128, -127, -1, 0, 1, 77, 127];
    for isa in Isa::available() {
        for (number, left) in (0..=255u8).enumerate() {
            let right = std::array::from_fn(|place| signed[(number + 2 * place) % signed.len()]);
            let left = [left, left / 3, 255 - left, 255];
            let products = left.iter().zip(right).map(|(&l, r)| i32::from(l) * i32::from(r));
            let expected = products.sum::<i32>() - 7;
            let found = dispatch(isa, UnsignedDot(left, right));
            assert_eq!(found, expected, "{isa:?} {left:?} {right:?}");
        }
    }
}

struct Transposed {
    source: Vec<f32>,
    stride: usize,
    rows: usize,
    panel_rows: usize,
    /// Columns that are read, if not all.
    count: Option<usize>,
}

impl Kernel for &Transposed {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        assert!(self.source.len() >= self.rows * self.stride && self.stride >= S::LANES + 3);
        let mut out = vec![-7.0; S::LANES * self.panel_rows + 1];
        let starts: Vec<*const f32> =
            (0..self.rows).map(|row| self.source[row * self.stride..].as_ptr()).collect();
        let (column, panel_rows) = (3, self.panel_rows);
        let block = Interleave { rows: &starts, column, panel_rows, out: out.as_mut_ptr() };
        match self.count {
            // SAFETY: each row has at least `LANES + 3` elements and `out` holds the whole panel.
            None => unsafe { simd.interleave(block) },
            // SAFETY: as above.
            Some(count) => unsafe { simd.interleave_partial(block, count) },
        }
        out
    }
}

impl Transposed {
    fn expected(&self, lanes: usize) -> Vec<f32> {
        let mut expected = vec![-7.0; lanes * self.panel_rows + 1];
        for column in 0..lanes {
            for row in 0..lanes.min(self.panel_rows) {
                let source = row * self.stride + column + 3;
                let read = row < self.rows && self.count.is_none_or(|count| column < count);
                let value = if read { self.source[source] } else { 0.0 };
                expected[column * self.panel_rows + row] = value;
            }
        }
        expected
    }
}

#[test]
fn interleave_transposes_and_pads_with_zeros() {
    for isa in Isa::available() {
        for panel_rows in (1..=isa.lanes()).chain([24, 48]) {
            for rows in 0..=panel_rows.min(isa.lanes()) {
                let stride = 21;
                for count in [None, Some(0), Some(1), Some(isa.lanes() - 1), Some(isa.lanes())] {
                    let source = (0..rows * stride).map(|i| i as f32 + 1.0).collect();
                    let input = Transposed { source, stride, rows, panel_rows, count };
                    let (found, expected) = (dispatch(isa, &input), input.expected(isa.lanes()));
                    assert_eq!(found, expected, "{isa:?} {rows} of {panel_rows}, {count:?}");
                }
            }
        }
    }
}

struct Widened<'a>(&'a [f16]);

impl Kernel for Widened<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut target = vec![-7.0; self.0.len()];
        simd.widen_f16(self.0, &mut target);
        target
    }
}

#[test]
fn every_half_is_widened_exactly() {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    for isa in Isa::available() {
        for source in [&halves[..], &halves[3..26], &halves[31_740..31_751], &[]] {
            let found = dispatch(isa, Widened(source));
            assert_eq!(found.len(), source.len());
            for (half, found) in source.iter().zip(found) {
                let (half, expected) = (half.to_bits(), half.to_f32_const());
                let same = found.to_bits() == expected.to_bits();
                assert!(same || found.is_nan() && expected.is_nan(), "{isa:?} {half:x} {found}");
            }
        }
    }
}

struct Streamed<'a>(&'a mut cutout_parallel::AlignedBuffer<f32>);

impl Kernel for Streamed<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        assert!(self.0.len() >= S::LANES);
        // SAFETY: the buffer is aligned to 64 bytes and has at least `LANES` elements.
        unsafe { simd.store_streaming(simd.splat(3.0), self.0.as_mut_ptr()) };
        simd.fence();
        simd.reduce_max(simd.fma(simd.splat(2.0), simd.load(self.0), simd.splat(1.0)))
    }
}

#[test]
fn streaming_stores_arrive() {
    for isa in Isa::available() {
        let mut buffer = cutout_parallel::AlignedBuffer::zeroed(16);
        assert_eq!(dispatch(isa, Streamed(&mut buffer)), 7.0, "{isa:?}");
    }
}

struct WhichIsa;

impl Kernel for WhichIsa {
    type Output = Isa;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Isa {
        assert_eq!(S::LANES, S::ISA.lanes());
        assert_eq!(simd.vectorize(LanesOf), S::LANES);
        S::ISA
    }
}

struct LanesOf;

impl Kernel for LanesOf {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        S::LANES
    }
}

#[test]
fn dispatch_uses_the_set_or_the_next_narrower_one() {
    for isa in Isa::ALL {
        assert_eq!(dispatch(isa, WhichIsa), isa.or_available());
    }
    assert_eq!(Isa::available()[0], Isa::detect());
    assert_eq!(Isa::available().last(), Some(&Isa::Portable));
}

/// Rounds pairs of vectors to bf16 and multiplies them.
struct Halves(Vec<f32>);

impl Kernel for Halves {
    /// Stored halves, paired halves, dot products of the pairs with themselves.
    type Output = [Vec<f32>; 3];
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> [Vec<f32>; 3] {
        let mut results = [Vec::new(), Vec::new(), Vec::new()];
        for chunk in self.0.chunks_exact(2 * S::LANES) {
            let (low, high) = (simd.load(chunk), simd.load(&chunk[S::LANES..]));
            let mut stored = [bf16::ZERO; 2 * MAX_LANES];
            // SAFETY: the array holds two vectors of any instruction set.
            unsafe { simd.store_bf16(low, high, stored.as_mut_ptr()) };
            results[0].extend(stored[..2 * S::LANES].iter().map(|half| half.to_f32()));
            let pairs = simd.pair_bf16(low, high);
            let mut words = [0i32; MAX_LANES];
            // SAFETY: the array holds a vector of any instruction set.
            unsafe { simd.store_int_pointer(pairs, words.as_mut_ptr()) };
            let half = |bits: u32| f32::from_bits(bits << 16);
            results[1].extend(words[..S::LANES].iter().map(|&word| half(word as u32 & 0xFFFF)));
            results[1].extend(words[..S::LANES].iter().map(|&word| half(word as u32 >> 16)));
            let mut sums = [0.0; MAX_LANES];
            simd.store(simd.dot2(simd.splat(1.0), pairs, pairs), &mut sums);
            results[2].extend(&sums[..S::LANES]);
        }
        results
    }
}

#[test]
fn bf16_is_rounded_paired_and_multiplied() {
    let denormal = |x: f32| x.is_subnormal();
    let mut inputs: Vec<f32> = values().into_iter().filter(|&x| !denormal(x)).collect();
    // Ties in both directions.
    inputs.extend([257.0, 259.0, -1.001_953_1, 1e-3, 3.25, 0.1, 77.0, -0.7]);
    inputs.resize(inputs.len().next_multiple_of(2 * MAX_LANES), 0.3);
    for isa in Isa::available() {
        let kernels =
            [dispatch(isa, Halves(inputs.clone())), dispatch_dots(isa, Halves(inputs.clone()))];
        for [stored, paired, sums] in kernels {
            for (index, &x) in inputs.iter().enumerate() {
                let expected = bf16::from_f32(x).to_f32();
                for found in [stored[index], paired[index]] {
                    assert!(same(found, expected), "{isa:?}: {x} is {found}, expected {expected}");
                }
            }
            let lanes = isa.lanes();
            for (chunk, sums) in stored.chunks_exact(2 * lanes).zip(sums.chunks_exact(lanes)) {
                for (lane, &sum) in sums.iter().enumerate() {
                    let [low, high] = [chunk[lane], chunk[lane + lanes]].map(f64::from);
                    let exact = 1.0 + low * low + high * high;
                    let close = (f64::from(sum) - exact).abs() <= 1e-6 * exact.abs();
                    assert!(
                        close || sum == exact as f32 || exact.is_nan(),
                        "{isa:?}: {sum} {exact}"
                    );
                }
            }
        }
    }
}
