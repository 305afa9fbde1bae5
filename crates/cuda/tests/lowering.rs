//! Lowering without a card: every op case and random graphs become launches that could run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use cutout_cuda::CudaRules;
use cutout_cuda::check::check;
use cutout_cuda::lower::{Target, lower};
use cutout_graph::passes::{Context, optimize};
use cutout_graph::plan::plan;
use cutout_graph::{Builder, Case, Graph, Op, Precision, Profile, Value, Weights};
use cutout_tensor::DType;
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
