use super::*;
use crate::simd::{Isa, Kernel, dispatch};

/// A function of this module, applied to a slice.
#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Erf,
    Gelu,
    Sigmoid,
    Tanh,
}

struct Apply<'a>(Function, &'a mut [f32]);

impl Kernel for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for chunk in self.1.chunks_mut(S::LANES) {
            let x = simd.load_partial(chunk);
            let y = match self.0 {
                Function::Exp => exp(simd, x),
                Function::Erf => erf(simd, x),
                Function::Gelu => gelu(simd, x),
                Function::Sigmoid => sigmoid(simd, x),
                Function::Tanh => tanh(simd, x),
            };
            simd.store_partial(y, chunk);
        }
    }
}

fn apply(isa: Isa, function: Function, inputs: &[f32]) -> Vec<f32> {
    let mut values = inputs.to_vec();
    dispatch(isa, Apply(function, &mut values));
    values
}

/// The error function in `f64`: Taylor series near zero, Laplace's continued fraction outside.
fn erf_exact(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut fraction = magnitude;
    for n in (1..200).rev() {
        fraction = magnitude + f64::from(n) / 2.0 / fraction;
    }
    let complement = (-x * x).exp() / fraction / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

/// Evenly spaced points, both ends included.
fn grid(low: f32, high: f32, points: usize) -> Vec<f32> {
    (0..=points).map(|i| low + (high - low) * i as f32 / points as f32).collect()
}

/// The difference in units in the last place of `expected`.
fn ulps(found: f32, expected: f64) -> f64 {
    let rounded = (expected as f32).abs().max(f32::MIN_POSITIVE);
    let unit = f64::from(f32::from_bits(rounded.to_bits() + 1)) - f64::from(rounded);
    (f64::from(found) - expected).abs() / unit
}

#[test]
fn exp_is_within_two_units_of_the_last_place() {
    for isa in Isa::available() {
        let inputs = grid(-87.0, 88.6, 400_000);
        let found = apply(isa, Function::Exp, &inputs);
        for (&x, &y) in inputs.iter().zip(&found) {
            let error = ulps(y, f64::from(x).exp());
            assert!(error <= 2.0, "{isa:?}: exp({x}) = {y}, {error} ulp");
        }
    }
}

#[test]
fn exp_at_the_edges() {
    let inputs =
        [f32::NEG_INFINITY, -1e30, -200.0, -104.5, 0.0, -0.0, 89.0, 1e30, f32::INFINITY, f32::NAN];
    for isa in Isa::available() {
        let found = apply(isa, Function::Exp, &inputs);
        assert_eq!(found[..4], [0.0; 4], "{isa:?}");
        assert_eq!(found[4..6], [1.0; 2], "{isa:?}");
        assert_eq!(found[6..9], [f32::INFINITY; 3], "{isa:?}");
        assert!(found[9].is_nan(), "{isa:?}");
        // Results below the smallest normal number are rounded, not flushed.
        for (x, y) in [-88.0f32, -95.0, -103.0].into_iter().zip(apply(
            isa,
            Function::Exp,
            &[-88.0, -95.0, -103.0],
        )) {
            assert!((f64::from(y) - f64::from(x).exp()).abs() <= 2e-45, "{isa:?}: exp({x}) = {y}");
        }
    }
}

#[test]
fn erf_and_gelu_are_within_their_bounds() {
    for isa in Isa::available() {
        let inputs = grid(-15.0, 15.0, 300_000);
        for (&x, &y) in inputs.iter().zip(&apply(isa, Function::Erf, &inputs)) {
            let error = (f64::from(y) - erf_exact(f64::from(x))).abs();
            assert!(error < 1.5e-7, "{isa:?}: erf({x}) = {y}, off by {error:e}");
            let relative = error / erf_exact(f64::from(x)).abs().max(1e-30);
            assert!(relative < 3e-7, "{isa:?}: erf({x}) = {y}, off by {error:e}");
            assert!(y.abs() <= 1.0, "{isa:?}: erf({x}) = {y}");
        }
        for (&x, &y) in inputs.iter().zip(&apply(isa, Function::Gelu, &inputs)) {
            let wide = f64::from(x);
            let exact = wide / 2.0 * (1.0 + erf_exact(wide * std::f64::consts::FRAC_1_SQRT_2));
            let error = (f64::from(y) - exact).abs();
            assert!(
                error < 1.5e-7 * wide.abs().max(1.0),
                "{isa:?}: gelu({x}) = {y}, off {error:e}"
            );
        }
    }
}

#[test]
fn sigmoid_and_tanh_are_within_their_bounds() {
    for isa in Isa::available() {
        let inputs = grid(-20.0, 20.0, 200_000);
        for (&x, &y) in inputs.iter().zip(&apply(isa, Function::Sigmoid, &inputs)) {
            let error = (f64::from(y) - 1.0 / (1.0 + (-f64::from(x)).exp())).abs();
            assert!(error < 1.5e-7, "{isa:?}: sigmoid({x}) = {y}, off by {error:e}");
        }
        for (&x, &y) in inputs.iter().zip(&apply(isa, Function::Tanh, &inputs)) {
            let exact = f64::from(x).tanh();
            let error = (f64::from(y) - exact).abs();
            assert!(error <= 4e-7 * exact.abs(), "{isa:?}: tanh({x}) = {y}, off by {error:e}");
        }
    }
}

#[test]
fn saturation_and_nan() {
    let inputs = [f32::NEG_INFINITY, -1e30, 1e30, f32::INFINITY, f32::NAN];
    for isa in Isa::available() {
        for function in [Function::Erf, Function::Tanh] {
            let found = apply(isa, function, &inputs);
            assert_eq!(found[..4], [-1.0, -1.0, 1.0, 1.0], "{isa:?} {function:?}");
            assert!(found[4].is_nan(), "{isa:?} {function:?}");
        }
        let found = apply(isa, Function::Sigmoid, &inputs);
        assert_eq!(found[..4], [0.0, 0.0, 1.0, 1.0], "{isa:?}");
        assert!(found[4].is_nan(), "{isa:?}");
        let found = apply(isa, Function::Gelu, &inputs);
        assert!(found[..2].iter().all(|y| y.abs() < 1e-36), "{isa:?}: {found:?}");
        assert_eq!(found[2..4], [1e30, f32::INFINITY], "{isa:?}");
        assert!(found[4].is_nan(), "{isa:?}");
    }
}
