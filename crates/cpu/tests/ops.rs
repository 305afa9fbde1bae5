//! Every case of every op, on every instruction set of this machine, against the plain-loop definition.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use cutout_cpu::{Cpu, Isa};
use cutout_graph::{Builder, Case, Graph, Op, Profile, Program, Weights, interpret_in};
use cutout_tensor::{Tensor, compare};

/// The graph of one op; inputs from `first_parameter` on are weights.
fn graph(case: &Case, first_parameter: usize) -> Graph {
    let builder = Builder::new();
    let values: Vec<_> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let name = format!("x{index}");
            if index >= first_parameter && input.ty.dtype == cutout_tensor::DType::F32 {
                builder.weights().parameter(&name, input.ty.shape.clone())
            } else {
                builder.input(&name, input.ty.dtype, input.ty.shape.clone())
            }
        })
        .collect();
    builder.output("y", values[0].apply(case.op.clone(), &values[1..]));
    builder.finish().unwrap()
}

fn check(case: &Case, cpu: &Cpu, first_parameter: usize) -> Option<String> {
    let tensors = case.tensors().unwrap();
    let named: Vec<(String, Tensor)> =
        tensors.into_iter().enumerate().map(|(i, tensor)| (format!("x{i}"), tensor)).collect();
    let graph = graph(case, first_parameter);
    let weights = Weights::new(named.iter().cloned().collect::<HashMap<_, _>>());
    let inputs: Vec<(&str, &Tensor)> = named
        .iter()
        .filter(|(name, _)| graph.inputs().any(|(input, _)| input == name))
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let expected = interpret_in::<f64>(&graph, &weights, &inputs).unwrap().remove(0).1;
    let program = cpu.compile_program(&graph, &weights, &Profile::default()).unwrap();
    let actual = program.run(&inputs).unwrap().remove(0).1;
    let difference = compare(&actual, &expected, case.tolerance).unwrap();
    (!difference.within).then(|| format!("{} on {:?}: {difference}", case.full_name(), cpu.isa()))
}

#[test]
fn every_case_matches_its_definition_on_every_path() {
    let mut failures = Vec::new();
    for isa in Isa::available() {
        let cpu = Cpu::with_isa(isa, 2);
        for case in Op::all_cases() {
            failures.extend(check(&case, &cpu, usize::MAX));
            failures.extend(check(&case, &cpu, 1));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
