//! Vectors of numbers as bytes.

use super::*;

/// Four vectors of numbers, and what is added to them.
struct Bytes(Vec<i32>, i32);

impl Kernel for Bytes {
    type Output = Vec<u8>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<u8> {
        assert_eq!(self.0.len(), 4 * S::LANES);
        let mut vectors = [simd.splat_int(0); 4];
        for (vector, numbers) in vectors.iter_mut().zip(self.0.chunks_exact(S::LANES)) {
            // SAFETY: the chunk has `LANES` elements.
            *vector = unsafe { simd.load_int_pointer(numbers.as_ptr()) };
        }
        let mut bytes = vec![0; 4 * S::LANES];
        // SAFETY: there are that many bytes.
        unsafe { simd.store_bytes(vectors, self.1, bytes.as_mut_ptr()) };
        bytes
    }
}

#[test]
fn four_vectors_of_bytes_are_stored_in_order() {
    for isa in Isa::available() {
        let numbers: Vec<i32> = (0..4 * isa.lanes() as i32).map(|i| i * 37 % 256 - 128).collect();
        for offset in [0, 128] {
            let expected: Vec<u8> = numbers.iter().map(|x| (x + offset) as u8).collect();
            assert_eq!(dispatch(isa, Bytes(numbers.clone(), offset)), expected, "{isa:?}");
        }
    }
}

struct BytePowers([f32; 4], f32);

impl Kernel for BytePowers {
    type Output = (u32, i32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (u32, i32, f32) {
        let [a, b, c, d] = self.0;
        let scores = [simd.splat(a), simd.splat(b), simd.splat(c), simd.splat(d)];
        let (words, marks) = simd.byte_powers(scores, simd.splat(self.1));
        let sums = simd.add_bytes(simd.splat_int(-7), words);
        let [mut words_of, mut sums_of] = [[0; MAX_LANES]; 2];
        // SAFETY: there are as many integers as lanes.
        unsafe { simd.store_int_pointer(words, words_of.as_mut_ptr()) };
        // SAFETY: as above.
        unsafe { simd.store_int_pointer(sums, sums_of.as_mut_ptr()) };
        assert_eq!(words_of[..S::LANES], [words_of[0]; MAX_LANES][..S::LANES]);
        (words_of[0] as u32, sums_of[0], simd.reduce_sum(marks))
    }
}

#[test]
fn powers_as_bytes_are_rounded_and_mark_nan() {
    for isa in Isa::available() {
        for number in 0..4000u16 {
            let origin = f32::from(number % 7) * 3.7 - 9.0;
            let below = [0.0, f32::from(number) / 401.0, f32::from(number), f32::INFINITY];
            let place = usize::from(number % 4);
            let mut scores = below.map(|below| origin - below);
            scores.rotate_right(place);
            let (word, sum, marks) = dispatch(isa, BytePowers(scores, origin));
            assert!(!marks.is_nan(), "{isa:?} {scores:?}");
            let bytes = word.to_le_bytes();
            assert_eq!(sum, bytes.map(i32::from).iter().sum::<i32>() - 7, "{isa:?} {bytes:?}");
            for (byte, score) in bytes.into_iter().zip(scores) {
                let exact = 255.0 * (score - origin).exp2();
                assert!((f32::from(byte) - exact).abs() < 0.6, "{isa:?} {byte} of {exact}");
            }
            scores[place] = f32::NAN;
            assert!(dispatch(isa, BytePowers(scores, origin)).2.is_nan(), "{isa:?} {scores:?}");
        }
    }
}
