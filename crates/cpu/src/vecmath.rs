//! Elementary functions on vectors, written once for every instruction set.
//!
//! NaN gives NaN. The coefficients are minimax fits made for this crate; the stated errors are checked against `f64`
//! in the tests.

use crate::simd::Simd;

/// Evaluates a polynomial by Horner's rule, constant coefficient first.
#[inline(always)]
pub(crate) fn polynomial<S: Simd, const TERMS: usize>(
    simd: S,
    x: S::F,
    coefficients: [f32; TERMS],
) -> S::F {
    let mut sum = simd.splat(coefficients[TERMS - 1]);
    let mut term = TERMS - 1;
    while term > 0 {
        term -= 1;
        sum = simd.fma(sum, x, simd.splat(coefficients[term]));
    }
    sum
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two<S: Simd>(simd: S, n: S::I) -> S::F {
    simd.from_bits(simd.shift_left(simd.add_int(n, simd.splat_int(127)), 23))
}

/// `e^x` within 2 units in the last place; 0 below about -104, infinity above about 88.7.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::F) -> S::F {
    // Outside these bounds the result is 0 or infinity; inside, 2^n is the product of two finite factors.
    let x = simd.max(simd.splat(-104.0), simd.min(simd.splat(89.0), x));
    let n = simd.round(simd.mul(x, simd.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts: the product of n and the first is exact.
    let rest = simd.fma(n, simd.splat(-0.693_145_75), x);
    let rest = simd.fma(n, simd.splat(-1.428_606_8e-6), rest);
    let value = polynomial(simd, rest, EXP);
    let n = simd.to_int(n);
    let half = simd.shift_right(n, 1);
    let value = simd.mul(value, power_of_two(simd, half));
    simd.mul(value, power_of_two(simd, simd.sub_int(n, half)))
}

/// `e^x` for `|x| <= ln(2) / 2`, relative error 3e-9.
const EXP: [f32; 7] =
    [1.0, 1.0, 0.499_999_93, 0.166_665_2, 0.041_668_395, 0.008_368_78, 0.001_381_446_6];

/// `2^x` for `x <= 0`, relative error 1e-7; never below `2^-126`.
#[inline(always)]
fn exp2_of_negative<S: Simd>(simd: S, x: S::F) -> S::F {
    let x = simd.max(simd.splat(-126.0), x);
    let n = simd.round(x);
    let value = polynomial(simd, simd.sub(x, n), EXP2);
    simd.mul(value, power_of_two(simd, simd.to_int(n)))
}

/// `2^x` for `|x| <= 1 / 2`, relative error 7.6e-8.
pub(crate) const EXP2: [f32; 6] =
    [1.000_000_1, 0.693_146_97, 0.240_221_18, 0.055_507_145, 0.009_675_656, 0.001_327_636];

/// `2^x` for `x <= 0` as two factors: two to the fraction of `x`, by the polynomial with these coefficients, and two to its integer part,
/// which is zero below -126.5. NaN gives NaN.
#[inline(always)]
pub(crate) fn power_parts<S: Simd, const TERMS: usize>(
    simd: S,
    x: S::F,
    coefficients: [f32; TERMS],
) -> [S::F; 2] {
    // A float of this size has no fraction bits: adding it rounds `x` and leaves the biased exponent of the result in the low
    // bits.
    let shift = simd.splat(12_582_912.0 + 127.0);
    let x = simd.max(simd.splat(-127.0), x);
    let shifted = simd.add(x, shift);
    let rest = simd.sub(x, simd.sub(shifted, shift));
    let value = polynomial(simd, rest, coefficients);
    // Multiplies instead of adding exponents: NaN stays NaN, and a biased exponent of 0 gives 0.
    [value, simd.from_bits(simd.shift_left(simd.bits(shifted), 23))]
}

/// `2^x` for `|x| <= 1 / 2`, relative error 7.5e-5: a 26th of the rounding to bf16 that follows.
pub(crate) const COARSE_EXP2: [f32; 4] = [0.999_928_1, 0.693_261, 0.242_611_13, 0.055_171_67];

/// The error function: absolute error below 1.5e-7, relative error below 3e-7.
#[inline(always)]
pub fn erf<S: Simd>(simd: S, x: S::F) -> S::F {
    let magnitude = simd.abs(x);
    let small = simd.mul(magnitude, polynomial(simd, simd.mul(x, x), ERF_SMALL));
    let complement = exp2_of_negative(simd, polynomial(simd, magnitude, ERF_LARGE));
    let large = simd.sub(simd.splat(1.0), complement);
    let value = simd.select(simd.less(magnitude, simd.splat(1.0)), small, large);
    simd.copy_sign(value, x)
}

/// `erf(x) / x` in `x * x` for `|x| <= 1`.
const ERF_SMALL: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_85,
    -0.026_853_812,
    0.005_188_327_5,
    -0.000_801_019_24,
    7.853_858e-5,
];
/// `log2(1 - erf(x))` for `x >= 0.95`.
const ERF_LARGE: [f32; 6] =
    [-0.003_246_105_7, -1.614_198_8, -0.941_454, -0.129_684_7, 0.021_898_976, -0.001_731_850_3];

/// `x / 2 * (1 + erf(x / sqrt(2)))`, the exact GELU: error below `1.5e-7 * max(1, |x|)`.
#[inline(always)]
pub fn gelu<S: Simd>(simd: S, x: S::F) -> S::F {
    // With `h` the normal distribution's upper tail beyond |x|, this is `x - x * h` or `x * h`, without cancellation.
    // Beyond 14 the tail is zero; the bound also avoids infinity times zero.
    let magnitude = simd.min(simd.splat(14.0), simd.abs(x));
    let tail = exp2_of_negative(simd, polynomial(simd, magnitude, GELU));
    simd.fma(simd.neg(magnitude), tail, simd.max(simd.splat(0.0), x))
}

/// `log2` of the normal distribution's upper tail, for `0 <= x <= 14`.
const GELU: [f32; 9] = [
    -1.0,
    -1.151_119_1,
    -0.459_102_1,
    -0.052_790_37,
    0.007_460_155,
    -0.000_424_191_9,
    -7.272_857e-5,
    1.647_646_5e-5,
    -9.954_87e-7,
];

/// `1 / (1 + e^-x)`
#[inline(always)]
pub fn sigmoid<S: Simd>(simd: S, x: S::F) -> S::F {
    let one = simd.splat(1.0);
    simd.div(one, simd.add(one, exp(simd, simd.neg(x))))
}

/// The hyperbolic tangent, relative error below 4e-7.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::F) -> S::F {
    let magnitude = simd.abs(x);
    let one = simd.splat(1.0);
    let small = simd.mul(magnitude, polynomial(simd, simd.mul(x, x), TANH));
    let power = exp(simd, simd.add(magnitude, magnitude));
    let large = simd.sub(one, simd.div(simd.splat(2.0), simd.add(power, one)));
    let value = simd.select(simd.less(magnitude, simd.splat(0.625)), small, large);
    simd.copy_sign(value, x)
}

/// `tanh(x) / x` in `x * x` for `|x| <= 0.64`.
const TANH: [f32; 6] =
    [1.0, -0.333_332_7, 0.133_310_92, -0.053_709_66, 0.020_538_82, -0.005_591_016];

#[cfg(test)]
mod tests;
