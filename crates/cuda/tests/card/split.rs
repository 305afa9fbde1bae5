//! Products and attention of f32 numbers. Models that are not single precision as a whole take the numbers as sums of two bf16.

use std::collections::HashMap;

use cutout_graph::ops::{Attention, ConvTranspose2d, Epilogue};
use cutout_graph::{Builder, Op, Precision, Weights};
use cutout_tensor::{DType, Tensor};
use cutout_testing::Random;

use super::{allowed, card, error_of, noise};

/// Products of many f32 rows in a model that is not single precision as a whole: numbers as sums of two bf16.
#[test]
fn products_of_many_rows_in_single_precision() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(21);
    let mut failures = Vec::new();
    for (rows, depth, columns) in
        [(20000, 256, 128), (13001, 128, 256), (12300, 72, 136), (65536, 64, 128), (40000, 20, 8)]
    {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [rows, depth]);
        let rest = builder.input("rest", DType::F32, [rows, columns]);
        let weights = builder.weights();
        let plain = x.linear(weights.parameter("weight", [columns, depth]));
        let shifted = plain + weights.parameter("bias", [columns]);
        builder.output("plain", plain);
        builder.output("activated", shifted.relu());
        builder.output("added", shifted + rest);
        let graph = builder.finish().unwrap();
        let scale = 1.0 / (depth as f64).sqrt();
        let weights = Weights::new(HashMap::from([
            ("weight".to_owned(), noise(&mut random, &[columns, depth], scale)),
            ("bias".to_owned(), noise(&mut random, &[columns], 0.5)),
        ]));
        let x = noise(&mut random, &[rows, depth], 1.0);
        let rest = noise(&mut random, &[rows, columns], 1.0);
        let given = [("x", &x), ("rest", &rest)];
        match error_of(&cuda, &graph, &weights, &given, Precision::Auto) {
            Ok(error) if error <= allowed(Precision::F32) => {
                println!("{rows}x{depth}x{columns}: {error:.1e}");
            }
            Ok(error) => failures.push(format!("{rows}x{depth}x{columns}: {error:.2e}")),
            Err(error) => failures.push(format!("{rows}x{depth}x{columns}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The same for transposed convolutions by 2 x 2, whose results go to their pixels.
#[test]
fn large_upscaling_in_single_precision() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(22);
    for (batch, side, inputs, outputs) in [(5, 64, 256, 64), (3, 72, 64, 32), (2, 90, 40, 24)] {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [batch, side, side, inputs]);
        let weights = builder.weights();
        let weight = weights.parameter("weight", [inputs, outputs, 2, 2]);
        let op = ConvTranspose2d { stride: [2, 2], padding: [0, 0], epilogue: Epilogue::NONE };
        let y = x.apply(Op::ConvTranspose2d(op), &[weight]);
        builder.output("y", y + weights.parameter("bias", [outputs]));
        let graph = builder.finish().unwrap();
        let weights = Weights::new(HashMap::from([
            ("weight".to_owned(), noise(&mut random, &[inputs, outputs, 2, 2], 0.1)),
            ("bias".to_owned(), noise(&mut random, &[outputs], 0.5)),
        ]));
        let x = noise(&mut random, &[batch, side, side, inputs], 1.0);
        let error = error_of(&cuda, &graph, &weights, &[("x", &x)], Precision::Auto).unwrap();
        println!("{batch} of {side}x{side}, {inputs} to {outputs}: {error:.1e}");
        assert!(error <= allowed(Precision::F32), "{error:.2e}");
    }
}

/// Batched matrix products, and elementwise ops that are fused into products and norms.
#[test]
fn what_follows_products_and_norms() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(23);
    for (batch, rows, depth, columns) in
        [(16, 4096, 256, 64), (6, 3001, 72, 136), (5, 4100, 64, 256), (64, 1000, 20, 8)]
    {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [batch, rows, depth]);
        let along = builder.input("along", DType::F32, [batch, columns, depth]);
        let across = builder.input("across", DType::F32, [batch, depth, columns]);
        let shared = builder.input("shared", DType::F32, [1, rows, columns]);
        let bias = builder.weights().parameter("bias", [columns]);
        builder.output("added", x.matmul_transposed(along) + shared);
        builder.output("activated", (x.matmul(across) + bias + shared).gelu());
        builder.output("normed", x.matmul(across));
        let graph = builder.finish().unwrap();
        let weights =
            Weights::new(HashMap::from([("bias".to_owned(), noise(&mut random, &[columns], 0.5))]));
        let scale = 1.0 / (depth as f64).sqrt();
        let x = noise(&mut random, &[batch, rows, depth], 1.0);
        let along = noise(&mut random, &[batch, columns, depth], scale);
        let across = noise(&mut random, &[batch, depth, columns], scale);
        let shared = noise(&mut random, &[1, rows, columns], 1.0);
        let given = [("x", &x), ("along", &along), ("across", &across), ("shared", &shared)];
        let error = error_of(&cuda, &graph, &weights, &given, Precision::Auto).unwrap();
        println!("{batch} of {rows}x{depth}x{columns}: {error:.1e}");
        assert!(error <= allowed(Precision::F32), "{error:.2e}");
    }
    for (batch, side, inputs, outputs) in [(4, 64, 256, 64), (3, 72, 64, 32)] {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [batch, side, side, inputs]);
        let level = builder.input("level", DType::F32, [1, 2 * side, 2 * side, outputs]);
        let weights = builder.weights();
        let op = ConvTranspose2d { stride: [2, 2], padding: [0, 0], epilogue: Epilogue::NONE };
        let weight = weights.parameter("weight", [inputs, outputs, 2, 2]);
        let up = x.apply(Op::ConvTranspose2d(op), &[weight]);
        let up = up + weights.parameter("bias", [outputs]);
        let (gain, shift) =
            (weights.parameter("gain", [outputs]), weights.parameter("shift", [outputs]));
        builder.output("normed", (up + level).layer_norm(gain, shift, 1e-6).gelu());
        builder.output("activated", (up + level).gelu());
        let graph = builder.finish().unwrap();
        let weights = Weights::new(HashMap::from([
            ("weight".to_owned(), noise(&mut random, &[inputs, outputs, 2, 2], 0.1)),
            ("bias".to_owned(), noise(&mut random, &[outputs], 0.5)),
            ("gain".to_owned(), noise(&mut random, &[outputs], 1.0)),
            ("shift".to_owned(), noise(&mut random, &[outputs], 0.5)),
        ]));
        let x = noise(&mut random, &[batch, side, side, inputs], 1.0);
        let level = noise(&mut random, &[1, 2 * side, 2 * side, outputs], 1.0);
        let given = [("x", &x), ("level", &level)];
        let error = error_of(&cuda, &graph, &weights, &given, Precision::Auto).unwrap();
        println!("{batch} of {side}x{side}, {inputs} to {outputs}: {error:.1e}");
        assert!(error <= allowed(Precision::F32), "{error:.2e}");
    }
}

/// Heads of 256 over many keys in a model that is not single precision as a whole.
#[test]
fn wide_heads_in_single_precision() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(24);
    for (batch, heads, queries, keys) in [(16, 1, 64, 4096), (3, 2, 70, 1001), (200, 1, 5, 300)] {
        let width = heads * 256;
        let builder = Builder::new();
        let query = builder.input("query", DType::F32, [batch, queries, width]);
        let key = builder.input("key", DType::F32, [batch, keys, width]);
        let value = builder.input("value", DType::F32, [batch, keys, width]);
        let op = Op::Attention(Attention::new(heads, 0.0625));
        builder.output("mixed", query.apply(op, &[key, value]));
        let graph = builder.finish().unwrap();
        let query = noise(&mut random, &[batch, queries, width], 1.0);
        let key = noise(&mut random, &[batch, keys, width], 1.0);
        let value = noise(&mut random, &[batch, keys, width], 1.0);
        let given = [("query", &query), ("key", &key), ("value", &value)];
        let weights = Weights::new(HashMap::new());
        let error = error_of(&cuda, &graph, &weights, &given, Precision::Auto).unwrap();
        println!("{batch} of {heads} heads, {queries} by {keys}: {error:.1e}");
        assert!(error <= allowed(Precision::F32), "{error:.2e}");
    }
}

#[test]
fn products_in_single_precision() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(17);
    let mut failures = Vec::new();
    // Rows, depth, columns, matrices; the right side along its depth and across it.
    for (rows, depth, columns, batch) in [
        (64, 64, 64, 1),
        (130, 100, 68, 3),
        (4096, 256, 64, 1),
        (4096, 64, 256, 2),
        (4, 32, 65536, 1),
        (9, 36, 9000, 2),
        (2000, 260, 1028, 1),
        (8192, 128, 512, 1),
    ] {
        let builder = Builder::new();
        let a = builder.input("a", DType::F32, [batch, rows, depth]);
        let along = builder.input("along", DType::F32, [batch, columns, depth]);
        let across = builder.input("across", DType::F32, [batch, depth, columns]);
        builder.output("along", a.matmul_transposed(along));
        builder.output("across", a.matmul(across).gelu());
        let graph = builder.finish().unwrap();
        let tensors = [
            ("a", noise(&mut random, &[batch, rows, depth], 1.0)),
            ("along", noise(&mut random, &[batch, columns, depth], 1.0)),
            ("across", noise(&mut random, &[batch, depth, columns], 1.0)),
        ];
        let given: Vec<(&str, &Tensor)> = tensors.iter().map(|(n, t)| (*n, t)).collect();
        match error_of(&cuda, &graph, &Weights::default(), &given, Precision::F32) {
            Ok(error) if error <= 5e-6 => {}
            Ok(error) => failures.push(format!("{rows}x{depth}x{columns}x{batch}: {error:.2e}")),
            Err(error) => failures.push(format!("{rows}x{depth}x{columns}x{batch}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
