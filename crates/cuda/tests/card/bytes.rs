//! Products of bytes: rows quantised by the norm before them, by a kernel of their own, and products that rotate for an attention.

use std::collections::HashMap;

use cutout_graph::ops::{Attention, AttentionInputs, AttentionRope, QuantizedLinear, Windows};
use cutout_graph::{Builder, Op, Precision, Value, Weights};
use cutout_tensor::{DType, Scales, Tensor};
use cutout_testing::Random;

use super::{card, error_of, noise};

/// A number that lies between two bytes may be rounded to either, as its own last bit is; and results are halves on the way.
const ALLOWED: f64 = 4e-3;
/// The same where the norm cannot write bytes: its result is rounded to halves before it is quantised.
const ALLOWED_OF_HALVES: f64 = 6e-3;

/// `x` times random bytes, with a bias.
pub(super) fn times_bytes<'g>(x: Value<'g>, columns: usize, random: &mut Random) -> Value<'g> {
    let depth = x.shape().last_axis();
    let values = (0..columns * depth).map(|_| (random.unit() * 254.0 - 127.0) as i8).collect();
    let step = 1.0 / (73.0 * (depth as f64).sqrt());
    let scales = (0..columns).map(|_| ((0.5 + random.unit()) * step) as f32).collect();
    let builder = x.builder();
    let values = builder.constant(Tensor::from_vec::<i8>([columns, depth], values).unwrap());
    let scales = builder.constant(Tensor::from_vec::<f32>([columns, 1], scales).unwrap());
    let op =
        QuantizedLinear { scales: Scales::PerRow, epilogue: cutout_graph::ops::Epilogue::NONE };
    let bias = builder.constant(noise(random, &[columns], 0.2));
    x.apply(Op::QuantizedLinear(op), &[values, scales]) + bias
}

/// Layer norm, two readers of which one looks at it in another shape, GELU, and a residual: every width that the encoders have.
#[test]
fn blocks_of_bytes() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(41);
    let mut failures = Vec::new();
    for (rows, width, hidden) in [
        (130, 96, 384),
        (61, 144, 576),
        (129, 576, 2304),
        (257, 768, 3072),
        (70, 1024, 4736),
        (66, 1280, 5120),
        (33, 1152, 4608),
        (65, 224, 896),
        (40, 256, 8192),
        (37, 40, 72),
    ] {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [rows, width]);
        let weights = builder.weights();
        let (gain, shift) =
            (weights.parameter("gain", [width]), weights.parameter("shift", [width]));
        let norm = x.layer_norm(gain, shift, 1e-6);
        builder.output("other", times_bytes(norm.reshape([1, rows, width]), 64, &mut random));
        let hidden = times_bytes(norm, hidden, &mut random).gelu();
        let positive = times_bytes(norm, 128, &mut random).relu();
        builder.output("relu", times_bytes(positive, 64, &mut random));
        builder.output("y", times_bytes(hidden, width, &mut random) + x);
        let graph = builder.finish().unwrap();
        let weights = Weights::new(HashMap::from([
            ("gain".to_owned(), noise(&mut random, &[width], 1.0)),
            ("shift".to_owned(), noise(&mut random, &[width], 0.2)),
        ]));
        let x = noise(&mut random, &[rows, width], 1.0);
        let allowed = if width.is_multiple_of(32) { ALLOWED } else { ALLOWED_OF_HALVES };
        match error_of(&cuda, &graph, &weights, &[("x", &x)], Precision::Int8) {
            Ok(error) if error <= allowed => println!("bytes {rows}x{width}: {error:.1e}"),
            Ok(error) => failures.push(format!("{rows}x{width}: {error:.2e}")),
            Err(error) => failures.push(format!("{rows}x{width}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Queries and keys that the product of bytes rotates, in windows and over the whole grid.
#[test]
fn rotated_products_of_bytes() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(42);
    for (side, window, heads) in [(48, 24, 2), (24, 24, 3), (40, 40, 5), (72, 24, 1)] {
        let (tokens, width) = (side * side, heads * 64);
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [1, tokens, width]);
        let [query, key, value] = times_bytes(x, 3 * width, &mut random).split(2);
        let angles = noise(&mut random, &[window * window, 32], 3.0).to_vec::<f32>().unwrap();
        let table = |of: fn(f32) -> f32| {
            let values = angles.iter().map(|&angle| of(angle)).collect();
            builder.constant(Tensor::from_vec::<f32>([window * window, 32], values).unwrap())
        };
        let (cos, sin) = (table(f32::cos), table(f32::sin));
        let windows = Windows {
            query_grid: [side; 2],
            key_grid: [side; 2],
            query_window: [window; 2],
            key_window: [window; 2],
        };
        let op = Attention {
            rope: Some(AttentionRope { key_tail: 0 }),
            windows: (window < side).then_some(windows),
            ..Attention::new(heads, 0.125)
        };
        let mut inputs = AttentionInputs::new(query, key, value);
        inputs.rope = Some([cos, sin, cos, sin]);
        builder.output("mixed", inputs.attend(op));
        let graph = builder.finish().unwrap();
        let x = noise(&mut random, &[1, tokens, width], 1.0);
        let error = error_of(&cuda, &graph, &Weights::default(), &[("x", &x)], Precision::Int8);
        let error = error.unwrap_or_else(|problem| panic!("{side}, {window}: {problem}"));
        assert!(error <= ALLOWED, "{side}, {window}: {error:.2e}");
        println!("rotated bytes {side} by {window}: {error:.1e}");
    }
}
