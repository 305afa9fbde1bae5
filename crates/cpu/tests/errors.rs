//! Bad input gives a typed error that names it, never a panic and never a wrong number.

use std::collections::HashMap;

use cutout_cpu::Cpu;
use cutout_graph::{
    Backend, BindError, Builder, CompileError, Graph, Profile, Program, RunError, Weights,
};
use cutout_tensor::{DType, Tensor, TensorType};

fn tensor(shape: &[usize]) -> Tensor {
    Tensor::from_vec(shape, vec![0.5f32; shape.iter().product()]).expect("as many as the shape")
}

fn weights(shape: &[usize]) -> Weights {
    Weights::new(HashMap::from([("w.weight".to_owned(), tensor(shape))]))
}

/// `y = x · w` with `x: f32[2, 3]` and `w.weight: f32[4, 3]`.
fn graph() -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [2, 3]);
    builder.output("y", x.linear(builder.weights().at("w").parameter("weight", [4, 3])));
    builder.finish().expect("the shapes fit")
}

fn program() -> Box<dyn Program> {
    Cpu::new(1).compile(&graph(), &weights(&[4, 3]), &Profile::default()).expect("it compiles")
}

#[test]
fn weights_that_do_not_fit_are_all_named() {
    let compile =
        |weights: &Weights| match Cpu::new(1).compile(&graph(), weights, &Profile::default()) {
            Err(CompileError::Bind(error)) => error,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it compiled"),
        };
    assert_eq!(compile(&Weights::default()).missing, ["w.weight"]);
    let mismatched = compile(&weights(&[3, 4]));
    let expected = (TensorType::f32([4, 3]), TensorType::f32([3, 4]));
    assert_eq!(
        mismatched,
        BindError {
            missing: Vec::new(),
            mismatched: vec![("w.weight".to_owned(), expected.0, expected.1)]
        }
    );
    assert_eq!(mismatched.to_string(), "w.weight: expected f32[4, 3], checkpoint has f32[3, 4]");
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let (right, wrong) = (tensor(&[2, 3]), tensor(&[3, 2]));
    let program = program();
    let message = |inputs: &[(&str, &Tensor)]| match program.run_named(inputs) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it ran"),
    };
    assert_eq!(message(&[]), "input \"x\" is missing");
    assert_eq!(message(&[("z", &right)]), "unknown input \"z\"; the inputs are x");
    assert_eq!(message(&[("x", &right), ("x", &right)]), "input \"x\" is given twice");
    assert_eq!(message(&[("x", &wrong)]), "input \"x\" must be f32[2, 3], got f32[3, 2]");
    assert!(program.run_named(&[("x", &right)]).is_ok());
}

#[test]
fn an_index_outside_its_table_is_named_not_read() {
    let builder = Builder::new();
    let table = builder.input("table", DType::F32, [3, 2]);
    builder.output("y", table.gather(builder.input("indices", DType::I64, [2])));
    let graph = builder.finish().expect("the shapes fit");
    let program =
        Cpu::new(1).compile(&graph, &Weights::default(), &Profile::default()).expect("it compiles");
    for outside in [3i64, -1, i64::MAX] {
        let indices = Tensor::from_vec([2], vec![0, outside]).expect("two elements");
        match program.run_named(&[("table", &tensor(&[3, 2])), ("indices", &indices)]) {
            Err(RunError::Value { reason, .. }) => {
                assert!(reason.contains(&outside.to_string()), "{reason}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("index {outside} was read"),
        }
    }
}

#[test]
fn scales_that_are_not_numbers_are_refused_when_the_graph_is_built() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [1, 2, 4]);
    let op = cutout_graph::ops::Attention::new(1, f32::NAN);
    builder.output("y", x.attention(x, x, op));
    let error = builder.finish().expect_err("a NaN scale");
    assert!(error.message.contains("scale") && error.message.contains("NaN"), "{error}");
}

#[test]
fn empty_tensors_run() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [0, 3]);
    builder.output("y", x.linear(builder.weights().at("w").parameter("weight", [4, 3])).gelu());
    let graph = builder.finish().expect("the shapes fit");
    let program =
        Cpu::new(2).compile(&graph, &weights(&[4, 3]), &Profile::default()).expect("it compiles");
    let outputs = program.run_named(&[("x", &tensor(&[0, 3]))]).expect("it runs");
    assert_eq!(outputs[0].1.shape()[..], [0, 4]);
}

#[test]
fn a_memory_limit_is_kept() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [1024, 1024]);
    builder.output("y", x.gelu());
    let graph = builder.finish().expect("the shapes fit");
    let profile = Profile::parse("memory_limit_mib = 1").expect("a valid profile");
    match Cpu::new(1).compile(&graph, &Weights::default(), &profile) {
        Err(CompileError::Memory { needed, limit }) => {
            assert_eq!((needed, limit), (4 << 20, 1 << 20));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it compiled"),
    }
}

#[test]
fn a_precision_without_kernels_is_refused() {
    let profile = Profile::parse("precision = \"f16\"").expect("a valid profile");
    let refused =
        Cpu::new(1).compile(&graph(), &weights(&[4, 3]), &profile).err().expect("it is refused");
    assert!(matches!(refused, CompileError::Unsupported { .. }), "{refused}");
}
