//! The inverse cosine transform of a block, with the integers of libjpeg's accurate method.
//!
//! Two passes of a one-dimensional transform with 13-bit constants: over columns, keeping two more bits than the samples,
//! then over rows. Sums of 16-bit values wrap and results saturate as in libjpeg-turbo's vector code, which matters for
//! damaged files only.

#[cfg(target_arch = "x86_64")]
mod sse2;

use crate::frame::{Block, SIDE};

/// Quantisation of a component, in the order of a block.
pub(crate) type Steps = [i16; 64];

/// Bits of the constants.
const CONSTANT_BITS: u32 = 13;
/// Bits kept between the passes.
const PASS_BITS: u32 = 2;
/// Bits dropped after the first and the second pass; the 3 are for the factor of 8 of two unscaled passes.
const FIRST_SHIFT: u32 = CONSTANT_BITS - PASS_BITS;
const SECOND_SHIFT: u32 = CONSTANT_BITS + PASS_BITS + 3;

/// Sums of rounded cosines times square roots, in units of 2^-13, as the vector code combines them.
mod constants {
    pub(super) const F_0_298: i16 = 2446;
    pub(super) const F_0_390: i16 = 3196;
    pub(super) const F_0_541: i16 = 4433;
    pub(super) const F_0_765: i16 = 6270;
    pub(super) const F_0_899: i16 = 7373;
    pub(super) const F_1_175: i16 = 9633;
    pub(super) const F_1_501: i16 = 12299;
    pub(super) const F_1_847: i16 = 15137;
    pub(super) const F_1_961: i16 = 16069;
    pub(super) const F_2_053: i16 = 16819;
    pub(super) const F_2_562: i16 = 20995;
    pub(super) const F_3_072: i16 = 25172;
}

/// Where the samples of a block go: 8 rows of 8 from `start` on, `stride` apart.
pub(crate) struct Target<'a> {
    pub(crate) samples: &'a mut [u8],
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

impl Target<'_> {
    #[inline(always)]
    fn row(&mut self, index: usize) -> &mut [u8] {
        &mut self.samples[self.start + index * self.stride..][..SIDE]
    }
}

/// Writes the samples of a block.
#[inline(always)]
pub(crate) fn transform(block: &Block, steps: &Steps, target: Target<'_>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE2.
    #[expect(unsafe_code, reason = "functions with a target feature are unsafe to call")]
    unsafe {
        sse2::transform(block, steps, target);
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain(block, steps, target);
}

/// The definition of the transform, in plain loops.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "the oracle of the vector code"))]
pub(crate) fn plain(block: &Block, steps: &Steps, mut target: Target<'_>) {
    let mut values = [0i16; 64];
    for (value, (coefficient, step)) in values.iter_mut().zip(block.iter().zip(steps)) {
        *value = coefficient.wrapping_mul(*step);
    }
    if block[SIDE..].iter().all(|&coefficient| coefficient == 0) {
        // Constant columns; these wrap where the full transform saturates.
        let first: [i16; SIDE] = std::array::from_fn(|column| values[column] << PASS_BITS);
        values.as_chunks_mut::<SIDE>().0.fill(first);
    } else {
        for column in 0..SIDE {
            let line = std::array::from_fn(|row| values[row * SIDE + column]);
            for (row, value) in line_transform(line, FIRST_SHIFT).into_iter().enumerate() {
                values[row * SIDE + column] = value;
            }
        }
    }
    for (index, row) in values.as_chunks::<SIDE>().0.iter().enumerate() {
        let samples = line_transform(*row, SECOND_SHIFT);
        for (sample, value) in target.row(index).iter_mut().zip(samples) {
            *sample = (value.clamp(-128, 127) + 128) as u8;
        }
    }
}

/// The one-dimensional transform.
fn line_transform(x: [i16; SIDE], shift: u32) -> [i16; SIDE] {
    use constants::*;
    let pair = |a: i16, by: i16, b: i16, with: i16| {
        (i32::from(a) * i32::from(by)).wrapping_add(i32::from(b) * i32::from(with))
    };
    let wide = |value: i16| i32::from(value) << CONSTANT_BITS;
    // Even part.
    let (sum, difference) = (wide(x[0].wrapping_add(x[4])), wide(x[0].wrapping_sub(x[4])));
    let outer = pair(x[2], F_0_541 + F_0_765, x[6], F_0_541);
    let inner = pair(x[2], F_0_541, x[6], F_0_541 - F_1_847);
    let even = [
        sum.wrapping_add(outer),
        difference.wrapping_add(inner),
        difference.wrapping_sub(inner),
        sum.wrapping_sub(outer),
    ];
    // Odd part.
    let (z3, z4) = (x[7].wrapping_add(x[3]), x[5].wrapping_add(x[1]));
    let a = pair(z3, F_1_175 - F_1_961, z4, F_1_175);
    let b = pair(z3, F_1_175, z4, F_1_175 - F_0_390);
    let odd = [
        pair(x[7], -F_0_899, x[1], F_1_501 - F_0_899).wrapping_add(b),
        pair(x[5], -F_2_562, x[3], F_3_072 - F_2_562).wrapping_add(a),
        pair(x[5], F_2_053 - F_2_562, x[3], -F_2_562).wrapping_add(b),
        pair(x[7], F_0_298 - F_0_899, x[1], -F_0_899).wrapping_add(a),
    ];
    let narrow = |value: i32| {
        let rounded = value.wrapping_add(1 << (shift - 1)) >> shift;
        rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    };
    std::array::from_fn(|index| match index {
        0..4 => narrow(even[index].wrapping_add(odd[index])),
        _ => narrow(even[7 - index].wrapping_sub(odd[7 - index])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(run: fn(&Block, &Steps, Target<'_>), block: &Block, steps: &Steps) -> Vec<u8> {
        let mut samples = vec![0; 80];
        run(block, steps, Target { samples: &mut samples, start: 1, stride: 9 });
        samples
    }

    /// A seeded xorshift generator.
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn a_constant_block_is_constant() {
        let mut block = [0; 64];
        for (dc, expected) in [(0, 128), (8, 129), (-1024, 0), (1016, 255), (4, 129), (3, 128)] {
            block[0] = dc;
            let mut all = samples(transform, &block, &[1; 64]);
            let row = all.drain(1..9).collect::<Vec<u8>>();
            assert_eq!(row, [expected; 8], "{dc}");
        }
    }

    #[test]
    fn the_vector_code_gives_the_same_bytes_as_the_definition() {
        let mut state = 0x5eed;
        for round in 0..20_000u32 {
            // From sparse blocks of usual size to full blocks of any 16-bit values.
            let count = next(&mut state) % [2, 6, 20, 65][round as usize % 4];
            let bits = [6, 9, 11, 16][round as usize / 4 % 4];
            let mut block = [0; 64];
            let mut steps = [0; 64];
            for step in &mut steps {
                *step = (next(&mut state) % (1 << [3, 8, 16][round as usize % 3])) as u16 as i16;
            }
            for _ in 0..count {
                let place = (next(&mut state) % 64) as usize;
                block[place] = (next(&mut state) as i16) >> (16 - bits);
            }
            let (found, expected) =
                (samples(transform, &block, &steps), samples(plain, &block, &steps));
            assert_eq!(found, expected, "{block:?} {steps:?}");
        }
    }

    /// The cosine of `frequency` at `place`, scaled so that all have the same length.
    fn basis(place: usize, frequency: usize) -> f64 {
        let scale = if frequency == 0 { 0.5f64.sqrt() } else { 1.0 };
        let angle = (2 * place + 1) as f64 * frequency as f64 / 16.0;
        scale * (angle * std::f64::consts::PI).cos() / 2.0
    }

    #[test]
    fn the_transform_is_the_cosine_transform() {
        let mut state = 7;
        for _ in 0..200 {
            let block: Block = std::array::from_fn(|_| (next(&mut state) % 31) as i16 - 15);
            let found = samples(plain, &block, &[1; 64]);
            for (y, x) in (0..64).map(|place| (place / 8, place % 8)) {
                let term = |(index, &value): (usize, &i16)| {
                    f64::from(value) * basis(y, index / 8) * basis(x, index % 8)
                };
                let expected = block.iter().enumerate().map(term).sum::<f64>() + 128.0;
                assert!((f64::from(found[1 + 9 * y + x]) - expected).abs() < 0.6);
            }
        }
    }
}
