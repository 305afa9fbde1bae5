//! Everything that needs a card. Each test says so and passes where there is none.
//!
//! Temporary memory and outputs hold NaN before each run, and every program runs twice with the same bits.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may panic, and say what they skip"
)]

mod bytes;
mod copies;
mod residuals;
mod split;

use std::collections::HashMap;

use cutout_cuda::Cuda;
use cutout_graph::ops::{
    Attention, AttentionInputs, BiasForm, ConvTranspose2d, Epilogue, SeparableBias, Windows,
};
use cutout_graph::{
    Backend, Builder, Case, CompileError, Graph, Named, Op, Precision, Profile, RunError, Value,
    Weights, interpret_in,
};
use cutout_tensor::{DType, Tensor, TensorType, Tolerance, compare};
use cutout_testing::{Random, RandomGraph, case_tensors, check_backend, compare_outputs, skip};

fn card() -> Option<Cuda> {
    Cuda::open_poisoned(0).inspect_err(|error| skip(&error.to_string())).ok()
}

fn profile(precision: Precision) -> Profile {
    Profile { precision, ..Profile::default() }
}

/// Relative error in the second norm that a precision may have in one op.
fn allowed(precision: Precision) -> f64 {
    match precision {
        Precision::Auto | Precision::F32 | Precision::Int8 => 1e-5,
        Precision::F16 => 2e-3,
        Precision::Bf16 => 1.6e-2,
    }
}

/// Names, types and bytes of all outputs.
fn bytes(outputs: &[Named]) -> Vec<(&str, &TensorType, &[u8])> {
    outputs
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor.ty(), tensor.as_bytes().unwrap()))
        .collect()
}

#[test]
fn op_cases_in_single_precision() {
    let Some(cuda) = card() else { return };
    match check_backend("cuda", &cuda, &profile(Precision::F32)) {
        Ok(count) => println!("{count} checks on {}", cuda.name()),
        Err(report) => panic!("{report}"),
    }
}

/// A graph of one op whose f32 operands but the first are weights.
fn one_op(case: &Case) -> (Graph, Weights, Vec<(String, Tensor)>) {
    let builder = Builder::new();
    let (mut values, mut weights, mut inputs) =
        (Vec::<Value<'_>>::new(), HashMap::new(), Vec::new());
    for (index, tensor) in case_tensors(case).unwrap().into_iter().enumerate() {
        let name = format!("operand{index}");
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        if index > 0 && dtype == DType::F32 {
            values.push(builder.weights().parameter(&name, shape));
            weights.insert(name, tensor);
        } else {
            values.push(builder.input(&name, dtype, shape));
            inputs.push((name, tensor));
        }
    }
    builder.output("result", values[0].apply(case.op.clone(), &values[1..]));
    (builder.finish().unwrap(), Weights::new(weights), inputs)
}

/// Runs twice, compares the bits, and returns the relative error to the interpreter.
fn error_of(
    cuda: &Cuda,
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
    precision: Precision,
) -> Result<f64, String> {
    let expected = interpret_in::<f64>(graph, weights, inputs).map_err(|e| e.to_string())?;
    let program = cuda.compile(graph, weights, &profile(precision)).map_err(|e| e.to_string())?;
    let first = program.run_named(inputs).map_err(|e| e.to_string())?;
    let second = program.run_named(inputs).map_err(|e| e.to_string())?;
    if bytes(&first) != bytes(&second) {
        return Err("two runs differ".to_owned());
    }
    let mut worst = 0f64;
    for ((_, actual), (_, expected)) in first.iter().zip(&expected) {
        worst = worst.max(relative_error(actual, expected)?);
    }
    Ok(worst)
}

fn relative_error(actual: &Tensor, expected: &Tensor) -> Result<f64, String> {
    let difference = compare(actual, expected, Tolerance::Exact).map_err(|e| e.to_string())?;
    if difference.largest.is_infinite() {
        return Err(format!("not finite: {difference}"));
    }
    Ok(difference.normalised_square_error.sqrt())
}

#[test]
fn op_cases_in_half_precision() {
    let Some(cuda) = card() else { return };
    let mut failures = Vec::new();
    for precision in [Precision::F16, Precision::Bf16] {
        for case in Op::all_cases() {
            let (graph, weights, inputs) = one_op(&case);
            let inputs: Vec<(&str, &Tensor)> =
                inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            match error_of(&cuda, &graph, &weights, &inputs, precision) {
                Ok(error) if error <= allowed(precision) => {}
                Ok(error) => {
                    failures.push(format!("{} {precision:?}: {error:.2e}", case.full_name()))
                }
                Err(error) => failures.push(format!("{} {precision:?}: {error}", case.full_name())),
            }
        }
    }
    // Cases with infinite or missing numbers have no relative error.
    failures.retain(|failure| !failure.contains("nan") && !failure.contains("not_finite"));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn random_graphs_give_the_interpreters_result() {
    let Some(cuda) = card() else { return };
    let mut failures = Vec::new();
    for seed in 0..300 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let expected = interpret_in::<f64>(&sample.graph, &sample.weights, &inputs).unwrap();
        let program =
            cuda.compile(&sample.graph, &sample.weights, &profile(Precision::F32)).unwrap();
        let first = program.run_named(&inputs).unwrap();
        let second = program.run_named(&inputs).unwrap();
        if let Err(error) = compare_outputs(&first, &expected, Tolerance::FastMath) {
            failures.push(format!("seed {seed}: {error}"));
        }
        if bytes(&first) != bytes(&second) {
            failures.push(format!("seed {seed}: two runs differ"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn random_graphs_in_half_precision_are_close() {
    let Some(cuda) = card() else { return };
    let mut failures = Vec::new();
    for seed in 0..200 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        // Errors grow over the ops of a graph.
        match error_of(&cuda, &sample.graph, &sample.weights, &inputs, Precision::F16) {
            Ok(error) if error < 2e-2 => {}
            Ok(error) => failures.push(format!("seed {seed}: {error:.2e}")),
            Err(error) => failures.push(format!("seed {seed}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Random numbers in a tensor.
fn noise(random: &mut Random, shape: &[usize], scale: f64) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| (random.normal() * scale) as f32).collect();
    Tensor::from_vec(shape.to_vec(), values).unwrap()
}

#[test]
fn linear_layers_of_many_shapes() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(7);
    let mut failures = Vec::new();
    for (rows, depth, columns) in [
        (1, 8, 8),
        (5, 64, 33),
        (64, 64, 64),
        (65, 72, 130),
        (196, 768, 768),
        (300, 1280, 96),
        (1000, 256, 2048),
        (2048, 144, 432),
        (14400, 2, 256),
        (127, 4096, 16),
    ] {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [rows, depth]);
        let weights = builder.weights();
        let norm = x.layer_norm(
            weights.parameter("gain", [depth]),
            weights.parameter("shift", [depth]),
            1e-6,
        );
        let y = norm.linear(weights.parameter("weight", [columns, depth]));
        let y = (y + weights.parameter("bias", [columns])).gelu();
        builder.output("y", y);
        let graph = builder.finish().unwrap();
        let tensors = HashMap::from([
            ("gain".to_owned(), noise(&mut random, &[depth], 1.0)),
            ("shift".to_owned(), noise(&mut random, &[depth], 0.2)),
            (
                "weight".to_owned(),
                noise(&mut random, &[columns, depth], 1.0 / (depth as f64).sqrt()),
            ),
            ("bias".to_owned(), noise(&mut random, &[columns], 0.5)),
        ]);
        let weights = Weights::new(tensors);
        let x = noise(&mut random, &[rows, depth], 1.0);
        for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
            let result = error_of(&cuda, &graph, &weights, &[("x", &x)], precision);
            match result {
                Ok(error) if error <= allowed(precision) => {}
                Ok(error) => {
                    failures.push(format!("{rows}x{depth}x{columns} {precision:?}: {error:.2e}"))
                }
                Err(error) => {
                    failures.push(format!("{rows}x{depth}x{columns} {precision:?}: {error}"))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// One attention with its sizes.
struct Attended {
    name: &'static str,
    op: Attention,
    batch: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

fn attentions() -> Vec<Attended> {
    let windows = |grid: [usize; 2], window: [usize; 2]| Windows {
        query_grid: grid,
        key_grid: grid,
        query_window: window,
        key_window: window,
    };
    let plain = |name, queries, keys, width, value_width| Attended {
        name,
        op: Attention::new(2, 0.2),
        batch: 2,
        queries,
        keys,
        width,
        value_width,
    };
    let windowed = |name, grid: [usize; 2], window, width, bias: bool| Attended {
        name,
        op: Attention {
            windows: Some(windows(grid, window)),
            bias: bias.then_some(SeparableBias { form: BiasForm::Relative, grid: window }),
            ..Attention::new(3, 0.2)
        },
        batch: 1,
        queries: grid[0] * grid[1],
        keys: grid[0] * grid[1],
        width,
        value_width: width,
    };
    let global = |name, grid: [usize; 2], width| Attended {
        name,
        op: Attention {
            bias: Some(SeparableBias { form: BiasForm::Relative, grid }),
            ..Attention::new(2, 0.2)
        },
        batch: 1,
        queries: grid[0] * grid[1],
        keys: grid[0] * grid[1],
        width,
        value_width: width,
    };
    let absolute = |name, queries, grid: [usize; 2], width| Attended {
        op: Attention {
            bias: Some(SeparableBias { form: BiasForm::Absolute, grid }),
            ..Attention::new(2, 0.2)
        },
        ..plain(name, queries, grid[0] * grid[1], width, width)
    };
    vec![
        plain("small", 7, 9, 16, 16),
        plain("odd", 65, 130, 24, 40),
        plain("wide", 100, 300, 64, 64),
        plain("eighty", 64, 64, 80, 80),
        plain("seventy_two", 70, 70, 72, 72),
        plain("long", 30, 4100, 32, 32),
        plain("memory", 128, 2000, 256, 64),
        plain("widest", 40, 200, 256, 256),
        windowed("window_14", [20, 20], [14, 14], 64, true),
        windowed("window_8", [16, 24], [8, 8], 96, false),
        windowed("window_7_padded", [10, 12], [7, 7], 80, false),
        global("global_bias", [16, 16], 64),
        global("global_bias_80", [12, 20], 80),
        absolute("absolute", 201, [36, 72], 32),
        absolute("absolute_narrow", 70, [41, 3], 32),
        absolute("absolute_line", 9, [1, 300], 64),
        absolute("absolute_column", 65, [130, 1], 16),
    ]
}

#[test]
fn attention_of_many_shapes() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(11);
    let mut failures = Vec::new();
    for case in attentions() {
        let heads = case.op.heads;
        let mut tensors = Vec::new();
        let mut tensor = |name: &str, shape: Vec<usize>| {
            tensors.push((name.to_owned(), noise(&mut random, &shape, 1.0)));
        };
        tensor("query", vec![case.batch, case.queries, heads * case.width]);
        tensor("key", vec![case.batch, case.keys, heads * case.width]);
        tensor("value", vec![case.batch, case.keys, heads * case.value_width]);
        if let Some(bias) = case.op.bias {
            let [height, width] = bias.grid.map(|length| match bias.form {
                BiasForm::Absolute => length,
                BiasForm::Relative => 2 * length - 1,
            });
            tensor("rows", vec![case.batch, case.queries, heads, height]);
            tensor("columns", vec![case.batch, case.queries, heads, width]);
        }
        if case.op.has_padding() {
            tensor("padding_key", vec![heads * case.width]);
            tensor("padding_value", vec![heads * case.value_width]);
        }
        let builder = Builder::new();
        let values: HashMap<&str, Value<'_>> = tensors
            .iter()
            .map(|(name, t)| (name.as_str(), builder.input(name, DType::F32, t.shape().clone())))
            .collect();
        let mut inputs = AttentionInputs::new(values["query"], values["key"], values["value"]);
        inputs.bias = case.op.bias.map(|_| [values["rows"], values["columns"]]);
        let padding = case.op.has_padding();
        inputs.padding = padding.then(|| [values["padding_key"], values["padding_value"]]);
        builder.output("mixed", inputs.attend(case.op));
        let graph = builder.finish().unwrap();
        let given: Vec<(&str, &Tensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
        for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
            let result = error_of(&cuda, &graph, &Weights::default(), &given, precision);
            match result {
                Ok(error) if error <= allowed(precision) => {}
                Ok(error) => failures.push(format!("{} {precision:?}: {error:.2e}", case.name)),
                Err(error) => failures.push(format!("{} {precision:?}: {error}", case.name)),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn an_index_outside_its_table_is_an_error() {
    let Some(cuda) = card() else { return };
    let builder = Builder::new();
    let table = builder.input("table", DType::F32, [3, 2]);
    let indices = builder.input("indices", DType::I64, [2]);
    builder.output("rows", table.gather(indices));
    let graph = builder.finish().unwrap();
    let program = cuda.compile(&graph, &Weights::default(), &Profile::default()).unwrap();
    let table = Tensor::from_vec([3, 2], vec![0f32; 6]).unwrap();
    let run = |indices: Vec<i64>| {
        let indices = Tensor::from_vec([2], indices).unwrap();
        program.run_named(&[("table", &table), ("indices", &indices)])
    };
    assert!(run(vec![0, 2]).is_ok());
    let Err(RunError::Value { reason, .. }) = run(vec![1, 3]) else { panic!("no error") };
    assert_eq!(reason, "index 3 at element 1 is outside a table of 3 rows");
    assert!(run(vec![2, 1]).is_ok());
}

/// A linear layer with a weight of `rows` · 1024 numbers, and its input.
fn one_layer(rows: usize) -> (Graph, Weights, Tensor) {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [64, 1024]);
    builder.output("y", x.linear(builder.weights().parameter("weight", [rows, 1024])));
    let weight = Tensor::from_vec([rows, 1024], vec![0.5f32; rows * 1024]).unwrap();
    let x = Tensor::from_vec([64, 1024], vec![1f32; 64 * 1024]).unwrap();
    let weights = Weights::new(HashMap::from([("weight".to_owned(), weight)]));
    (builder.finish().unwrap(), weights, x)
}

#[test]
fn memory_is_freed_with_the_backend() {
    let Some(watching) = card() else { return };
    let before = watching.free_bytes();
    let other = Cuda::open(0).unwrap();
    let (graph, weights, x) = one_layer(1 << 17);
    let program = other.compile(&graph, &weights, &profile(Precision::F32)).unwrap();
    for _ in 0..100 {
        program.run_named(&[("x", &x)]).unwrap();
    }
    let used = other.used_bytes();
    assert!(used > 512 << 20 && before - watching.free_bytes() >= 512 << 20, "{used} bytes used");
    drop((program, weights, other));
    // Other tests use the card at the same time, for some seconds.
    let is_back = || before.saturating_sub(watching.free_bytes()) < 256 << 20;
    let back = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        is_back()
    });
    assert!(back, "{before} then {}", watching.free_bytes());
}

#[test]
fn a_limit_on_memory_is_kept() {
    if card().is_none() {
        return;
    }
    let limited = Cuda::open_limited(0, 64 << 20).unwrap();
    let (small, weights, x) = one_layer(1 << 10);
    let single = profile(Precision::F32);
    let program = limited.compile(&small, &weights, &single).unwrap();
    program.run_named(&[("x", &x)]).unwrap();
    let (large, many_weights, _) = one_layer(1 << 15);
    let Err(CompileError::DeviceMemory { weights: bytes, available, .. }) =
        limited.compile(&large, &many_weights, &single)
    else {
        panic!("128 MiB fit into 64")
    };
    assert!(bytes == 128 << 20 && available <= 64 << 20, "{bytes} of {available}");
    // What failed left nothing behind, and what ran before still runs.
    assert!(limited.used_bytes() < 32 << 20, "{}", limited.used_bytes());
    program.run_named(&[("x", &x)]).unwrap();
    let tensor = Tensor::from_vec([20 << 20], vec![0f32; 20 << 20]).unwrap();
    assert!(matches!(limited.upload(&tensor), Err(RunError::DeviceMemory { .. })));
}

#[test]
fn transposed_convolutions_in_single_precision() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(19);
    for (batch, side, inputs, outputs) in [(1, 64, 256, 64), (2, 40, 64, 32), (1, 33, 36, 5)] {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [batch, side, side + 3, inputs]);
        let other = builder.input("other", DType::F32, [batch, 2 * side, 2 * side + 6, outputs]);
        let weights = builder.weights();
        let op = ConvTranspose2d { stride: [2, 2], padding: [0, 0], epilogue: Epilogue::NONE };
        let weight = weights.parameter("weight", [inputs, outputs, 2, 2]);
        let y = x.apply(Op::ConvTranspose2d(op), &[weight]);
        builder.output("y", y + weights.parameter("bias", [outputs]) + other);
        let graph = builder.finish().unwrap();
        let weights = Weights::new(HashMap::from([
            ("weight".to_owned(), noise(&mut random, &[inputs, outputs, 2, 2], 0.1)),
            ("bias".to_owned(), noise(&mut random, &[outputs], 1.0)),
        ]));
        let x = noise(&mut random, &[batch, side, side + 3, inputs], 1.0);
        let other = noise(&mut random, &[batch, 2 * side, 2 * side + 6, outputs], 1.0);
        let given = [("x", &x), ("other", &other)];
        let error = error_of(&cuda, &graph, &weights, &given, Precision::F32).unwrap();
        assert!(error <= 5e-6, "{batch}x{side}x{inputs}x{outputs}: {error:.2e}");
    }
}

#[test]
fn a_number_without_a_card_is_an_error() {
    assert!(Cuda::open(4711).is_err());
}

#[test]
fn steps_are_timed() {
    let Some(cuda) = card() else { return };
    let sample = RandomGraph::new(3).unwrap();
    let program = cuda.compile(&sample.graph, &sample.weights, &profile(Precision::F32)).unwrap();
    let (outputs, times) = program.run_named_timed(&sample.named_inputs()).unwrap();
    assert!(!times.is_empty());
    let again = program.run_named(&sample.named_inputs()).unwrap();
    assert_eq!(bytes(&outputs), bytes(&again));
}
