//! Random graphs: the compiled program gives the interpreter's result, on every path and for any number of threads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_cpu::{Cpu, Isa};
use cutout_graph::{Backend, Named, Profile, Weights, interpret_in};
use cutout_tensor::{DType, Tolerance, compare};
use cutout_testing::RandomGraph;

fn run(cpu: &Cpu, sample: &RandomGraph) -> Vec<Named> {
    let program = cpu.compile(&sample.graph, &sample.weights, &Profile::default()).unwrap();
    program.run_named(&sample.named_inputs()).unwrap()
}

#[test]
fn programs_give_the_interpreters_result() {
    let cpus: Vec<Cpu> = Isa::available().into_iter().map(|isa| Cpu::with_isa(isa, 2)).collect();
    for seed in 0..300 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let expected = interpret_in::<f64>(&sample.graph, &sample.weights, &inputs).unwrap();
        for cpu in &cpus {
            for ((name, actual), (_, expected)) in run(cpu, &sample).iter().zip(&expected) {
                let difference = compare(actual, expected, Tolerance::FastMath).unwrap();
                let isa = cpu.isa();
                assert!(
                    difference.within,
                    "seed {seed} on {isa:?}: output {name}: {difference}\n{}",
                    sample.graph
                );
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let cpus: Vec<Cpu> = [1, 2, 7].into_iter().map(Cpu::new).collect();
    for seed in 0..100 {
        let sample = RandomGraph::new(seed).unwrap();
        let results: Vec<Vec<Named>> = cpus.iter().map(|cpu| run(cpu, &sample)).collect();
        for result in &results[1..] {
            for ((name, actual), (_, expected)) in result.iter().zip(&results[0]) {
                let same = actual.as_bytes().unwrap() == expected.as_bytes().unwrap();
                assert!(same, "seed {seed}: output {name} depends on the number of threads");
            }
        }
    }
}

#[test]
fn weights_in_half_precision_are_read_as_they_are() {
    let cpu = Cpu::new(2);
    for (seed, dtype) in (0..200).zip([DType::F16, DType::BF16].into_iter().cycle()) {
        let mut sample = RandomGraph::new(seed).unwrap();
        let half =
            |path: &str| sample.weights.get(path).unwrap().tensor().unwrap().cast(dtype).unwrap();
        let tensors = sample.weights.paths().map(|path| (path.to_owned(), half(path))).collect();
        sample.weights = Weights::new(tensors);
        let inputs = sample.named_inputs();
        let expected = interpret_in::<f64>(&sample.graph, &sample.weights, &inputs).unwrap();
        for ((name, actual), (_, expected)) in run(&cpu, &sample).iter().zip(&expected) {
            let difference = compare(actual, expected, Tolerance::FastMath).unwrap();
            assert!(
                difference.within,
                "seed {seed}: output {name}: {difference}\n{}",
                sample.graph
            );
        }
    }
}
