//! Packed weights are shared by programs, and memory stays flat from run to run.

use std::collections::HashMap;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Builder, Graph, Profile, Program, Weights};
use cutout_tensor::{DType, Tensor};

fn graph(rows: usize) -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [rows, 64]);
    let w = builder.weights();
    let table = w.parameter("table", [64, 64]).permute([1, 0]);
    builder.output("y", x.linear(w.parameter("weight", [64, 64])).linear(table));
    builder.finish().unwrap()
}

#[test]
fn programs_over_the_same_weights_share_what_was_packed() {
    let noise = |seed: usize| {
        let values = (0..64 * 64).map(|i| ((i * 7 + seed) % 13) as f32 - 6.0).collect::<Vec<f32>>();
        Tensor::from_vec([64, 64], values).unwrap()
    };
    let tensors = HashMap::from([("weight".to_owned(), noise(1)), ("table".to_owned(), noise(5))]);
    let weights = Weights::new(tensors);
    let cpu = Cpu::new(1);
    let first = cpu.compile(&graph(3), &weights, &Profile::default()).unwrap();
    let prepared = weights.form_count();
    assert_eq!(prepared, 2, "the weight, and the table that a pass has transposed");
    let second = cpu.compile(&graph(5), &weights, &Profile::default()).unwrap();
    assert_eq!(weights.form_count(), prepared, "the second program packs nothing");
    let row = Tensor::from_vec([1, 64], (0..64).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let run = |program: &dyn Program, rows: usize| {
        let x = row.broadcast_to([rows, 64]).unwrap().to_contiguous().unwrap();
        program.run_named(&[("x", &x)]).unwrap().remove(0).1.to_vec::<f32>().unwrap()
    };
    assert_eq!(run(&*first, 3)[..64], run(&*second, 5)[..64]);
}
