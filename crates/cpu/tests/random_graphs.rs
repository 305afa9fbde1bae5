//! Random graphs: the compiled program gives the interpreter's result, on every path and for any number of threads.

use cutout_cpu::{Cpu, Isa};
use cutout_graph::{Backend, Named, Profile, Weights, interpret_in};
use cutout_tensor::{DType, TensorType, Tolerance};
use cutout_testing::{RandomGraph, compare_outputs};

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
            compare_outputs(&run(cpu, &sample), &expected, Tolerance::FastMath).unwrap_or_else(
                |e| panic!("seed {seed} on {:?}: {e}\n{}", cpu.isa(), sample.graph),
            );
        }
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
fn any_number_of_threads_gives_the_same_bits() {
    let cpus: Vec<Cpu> = [1, 2, 7].into_iter().map(Cpu::new).collect();
    for seed in 0..100 {
        let sample = RandomGraph::new(seed).unwrap();
        let results: Vec<Vec<Named>> = cpus.iter().map(|cpu| run(cpu, &sample)).collect();
        for result in &results[1..] {
            assert_eq!(bytes(result), bytes(&results[0]), "seed {seed} depends on the threads");
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
        compare_outputs(&run(&cpu, &sample), &expected, Tolerance::FastMath)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", sample.graph));
    }
}
