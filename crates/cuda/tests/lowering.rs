//! Lowering without a card: every op case and random graphs become launches that could run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use cutout_cuda::CudaRules;
use cutout_cuda::check::check;
use cutout_cuda::lower::{Target, lower};
use cutout_graph::ops::{ConvTranspose2d, Epilogue, QuantizedLinear};
use cutout_graph::passes::{Context, optimize};
use cutout_graph::plan::plan;
use cutout_graph::{Builder, Case, Graph, Op, Precision, Profile, Value, Weights};
use cutout_tensor::{DType, Scales, Tensor};
use cutout_testing::{RandomGraph, case_tensors};

const TARGETS: [Target; 2] = [Target::HOPPER, Target::AMPERE];

fn profiles() -> Vec<Profile> {
    let precisions = [Precision::F32, Precision::F16, Precision::Bf16, Precision::Int8];
    precisions.map(|precision| Profile { precision, ..Profile::default() }).into()
}

/// A graph of one op; the f32 operands but the first are weights if `parameters`.
fn one_op(case: &Case, parameters: bool) -> (Graph, Weights) {
    let builder = Builder::new();
    let (mut values, mut weights) = (Vec::<Value<'_>>::new(), HashMap::new());
    for (index, tensor) in case_tensors(case).unwrap().into_iter().enumerate() {
        let name = format!("operand{index}");
        let (dtype, shape): (DType, _) = (tensor.dtype(), tensor.shape().clone());
        if parameters && index > 0 && dtype == DType::F32 {
            values.push(builder.weights().parameter(&name, shape));
            weights.insert(name, tensor);
        } else {
            values.push(builder.input(&name, dtype, shape));
        }
    }
    builder.output("result", values[0].apply(case.op.clone(), &values[1..]));
    (builder.finish().unwrap(), Weights::new(weights))
}

fn lowered(graph: &Graph, weights: &Weights, profile: &Profile) -> Result<usize, String> {
    let context = Context::new(Some(weights), profile);
    let graph = optimize(graph, &[], &context).map_err(|error| error.to_string())?;
    let plan = plan(&graph, &CudaRules::new(profile));
    let mut launches = 0;
    for target in TARGETS {
        let lowered = lower(&graph, &plan, profile, target).map_err(|error| error.to_string())?;
        launches += check(&lowered, target)?;
    }
    Ok(launches)
}

#[test]
fn every_op_case_lowers() {
    let mut launches = 0;
    for case in Op::all_cases() {
        for parameters in [false, true] {
            let (graph, weights) = one_op(&case, parameters);
            for profile in profiles() {
                launches += lowered(&graph, &weights, &profile)
                    .unwrap_or_else(|error| panic!("{}: {error}", case.full_name()));
            }
        }
    }
    assert!(launches > 1000, "{launches}");
}

#[test]
fn random_graphs_lower() {
    for seed in 0..200 {
        let random = RandomGraph::new(seed).unwrap();
        for profile in profiles() {
            lowered(&random.graph, &random.weights, &profile)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

/// Kernels of each step of a graph on Hopper.
fn kernels(graph: &Graph) -> Vec<(String, Vec<String>)> {
    kernels_in(graph, &Profile::default())
}

fn kernels_in(graph: &Graph, profile: &Profile) -> Vec<(String, Vec<String>)> {
    let graph = optimize(graph, &[], &Context::new(None, profile)).unwrap();
    let plan = plan(&graph, &CudaRules::new(profile));
    let lowered = lower(&graph, &plan, profile, Target::HOPPER).unwrap();
    check(&lowered, Target::HOPPER).unwrap();
    let names = |launches: &[cutout_cuda::launch::Launch]| {
        launches.iter().map(|launch| launch.kernel.0.to_string()).collect()
    };
    lowered.steps.iter().map(|step| (step.op.to_owned(), names(&step.launches))).collect()
}

/// What is there besides an upscaling, an addition and GELU.
#[derive(Clone, Copy, PartialEq)]
enum Besides {
    Nothing,
    /// What is added is computed by a step.
    Computed,
    /// The upscaling is an output too.
    Shown,
}

fn upscaling(besides: Besides) -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [8, 64, 64, 256]);
    let level = builder.input("level", DType::F32, [1, 128, 128, 64]);
    let weights = builder.weights();
    let level = match besides {
        Besides::Nothing | Besides::Shown => level,
        Besides::Computed => {
            let (gain, shift) = (weights.parameter("gain", [64]), weights.parameter("shift", [64]));
            level.layer_norm(gain, shift, 1e-6)
        }
    };
    let weight = weights.parameter("weight", [256, 64, 2, 2]);
    let op = ConvTranspose2d { stride: [2, 2], padding: [0, 0], epilogue: Epilogue::NONE };
    let up = x.apply(Op::ConvTranspose2d(op), &[weight]);
    builder.output("y", (up + level).gelu());
    if besides == Besides::Shown {
        builder.output("up", up);
    }
    builder.finish().unwrap()
}

#[test]
fn a_product_computes_what_follows_it() {
    let launches = |graph: &Graph| -> Vec<String> {
        kernels(graph).into_iter().flat_map(|(_, names)| names).collect()
    };
    let one = launches(&upscaling(Besides::Nothing));
    assert!(one.len() == 1 && one[0].starts_with("gemm_split"), "{one:?}");
    // Where the result itself is read as well, or the other operand is not there yet, the op is a launch of its own.
    for graph in [Besides::Computed, Besides::Shown].map(upscaling) {
        let names = launches(&graph);
        assert!(names.iter().any(|name| name.starts_with("chain")), "{names:?}");
    }
}

#[test]
fn a_norm_computes_the_activation_behind_it() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [4096, 64]);
    let weights = builder.weights();
    let (gain, shift) = (weights.parameter("gain", [64]), weights.parameter("shift", [64]));
    builder.output("y", x.layer_norm(gain, shift, 1e-6).gelu());
    let names = kernels(&builder.finish().unwrap());
    let launches: usize = names.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(launches, 1, "{names:?}");
}

/// `x` times bytes.
fn times_bytes(x: Value<'_>, columns: usize) -> Value<'_> {
    let depth = x.shape().last_axis();
    let values = Tensor::from_vec([columns, depth], vec![1i8; columns * depth]).unwrap();
    let scales = Tensor::from_vec([columns, 1], vec![0.5f32; columns]).unwrap();
    let op = QuantizedLinear { scales: Scales::PerRow, epilogue: Epilogue::NONE };
    let constants = [values, scales].map(|tensor| x.builder().constant(tensor));
    x.apply(Op::QuantizedLinear(op), &constants)
}

/// Kernels of a graph in which two products of bytes read a norm, one through a reshape. `besides` adds other readers of the norm.
fn norm_of_bytes(width: usize, besides: impl for<'g> Fn(Value<'g>)) -> Vec<String> {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [1, 96, width]);
    let weights = builder.weights();
    let (gain, shift) = (weights.parameter("gain", [width]), weights.parameter("shift", [width]));
    let norm = x.layer_norm(gain, shift, 1e-6);
    builder.output("y", times_bytes(norm, 64));
    builder.output("z", times_bytes(norm.reshape([96, width]), 128));
    besides(norm);
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    let names = kernels_in(&builder.finish().unwrap(), &profile);
    names.into_iter().flat_map(|(_, names)| names).collect()
}

#[test]
fn a_norm_writes_the_bytes_that_are_multiplied() {
    let count = |names: &[String], part: &str| names.iter().filter(|n| n.contains(part)).count();
    let names = norm_of_bytes(768, |_| ());
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(count(&names, "norm_bytes_f16"), 1, "{names:?}");
    assert_eq!(count(&names, "gemm_s8"), 2, "{names:?}");
    // Where it is read in another way, where rows mix, and where rows of bytes need zeros behind them, it does not.
    let shown = norm_of_bytes(768, |norm| norm.builder().output("norm", norm));
    let added = norm_of_bytes(768, |norm| norm.builder().output("sum", norm + 1.0));
    let mixed = norm_of_bytes(768, |norm| {
        norm.builder().output("mixed", times_bytes(norm.reshape([192, 384]), 64));
    });
    let padded = norm_of_bytes(144, |_| ());
    for names in [shown, added, mixed, padded] {
        assert_eq!(count(&names, "norm_bytes"), 0, "{names:?}");
        assert!(count(&names, "quantize") >= 2, "{names:?}");
    }
}
