//! Outputs are handed over: a result in memory of its own is not copied, and what is passed through keeps its memory.

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Builder, Profile, RunError, Weights};
use cutout_tensor::{DType, Tensor};

#[test]
fn inputs_that_are_outputs_keep_their_memory() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [2, 3]);
    builder.output("same", x);
    builder.output("doubled", x + x);
    builder.output("view", (x + x).reshape([3, 2]));
    builder.output("part", (x + x).slice(1, 1..3));
    let graph = builder.finish().unwrap();
    let cpu = Cpu::new(1);
    let program = cpu.compile(&graph, &Weights::default(), &Profile::default()).unwrap();
    let tensor = Tensor::from_vec([2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let x = cpu.upload(&tensor).unwrap();
    let outputs = program.run(&[&x]).unwrap();
    let fetched: Vec<Tensor> = outputs.iter().map(|output| output.fetch().unwrap()).collect();
    assert!(fetched[0].shares_memory(&tensor), "an input is passed on");
    assert!(fetched[1].shares_memory(&fetched[2]), "two views of one result share it");
    assert!(!fetched[1].shares_memory(&fetched[3]), "a part does not keep the whole");
    let values = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap();
    assert_eq!(values(&fetched[1]), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(values(&fetched[2]), values(&fetched[1]));
    assert_eq!(values(&fetched[3]), [4.0, 6.0, 10.0, 12.0]);
    // A later run leaves earlier results alone.
    let other = cpu.upload(&Tensor::from_vec([2, 3], vec![0f32; 6]).unwrap()).unwrap();
    program.run(&[&other]).unwrap();
    assert_eq!(values(&fetched[1]), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn values_are_checked_by_number_and_type() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [2]);
    builder.output("y", x.relu());
    let graph = builder.finish().unwrap();
    let cpu = Cpu::new(1);
    let program = cpu.compile(&graph, &Weights::default(), &Profile::default()).unwrap();
    let wrong = cpu.upload(&Tensor::from_vec([3], vec![0f32; 3]).unwrap()).unwrap();
    assert_eq!(program.run(&[]).unwrap_err(), RunError::InputCount { expected: 1, found: 0 });
    let message = program.run(&[&wrong]).unwrap_err().to_string();
    assert_eq!(message, "input \"x\" must be f32[2], got f32[3]");
}
