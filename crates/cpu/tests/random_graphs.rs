//! Random graphs: the compiled program gives the interpreter's result, on every path and for any number of threads.

use cutout_cpu::{ByteConvolutions, ByteUnit, Cpu, HalfUnit, Isa, Units};
use cutout_graph::passes::{Context, optimize};
use cutout_graph::{Backend, Kind, Named, Op, Precision, Profile, Weights, interpret_in};
use cutout_tensor::{DType, TensorType, Tolerance, compare};
use cutout_testing::{RandomGraph, compare_outputs, interpret_quantized, with_rounded_products};

fn run(cpu: &Cpu, sample: &RandomGraph) -> Vec<Named> {
    run_in(cpu, sample, &Profile::default())
}

fn run_in(cpu: &Cpu, sample: &RandomGraph, profile: &Profile) -> Vec<Named> {
    let program = cpu.compile(&sample.graph, &sample.weights, profile).unwrap();
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

/// Fewest elements of an output whose error on average says something: a single sum may cancel by chance.
const FEWEST_ELEMENTS: usize = 8;

/// Root of the squared differences, relative to the expected values, of the output where it is largest; `None` where all outputs
/// are small.
fn error(found: &[Named], expected: &[Named]) -> Option<f64> {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let pairs =
        pairs.filter(|(_, (_, expected))| expected.ty().shape.elements() >= FEWEST_ELEMENTS);
    let errors = pairs.map(|((_, found), (_, expected))| {
        compare(found, expected, Tolerance::HalfPrecision).unwrap().normalised_square_error.sqrt()
    });
    errors.max_by(f64::total_cmp)
}

/// A number near the middle of two bf16 numbers may be rounded to the other one, so results differ by parts of what the rounding
/// itself changes.
#[test]
fn programs_in_bf16_give_the_result_of_rounded_products() {
    let profile = Profile { precision: Precision::Bf16, ..Profile::default() };
    let cpus: Vec<Cpu> = Isa::available()
        .into_iter()
        .flat_map(|isa| HalfUnit::ALL.map(|half| (isa, half)))
        .filter(|(_, half)| half.is_available())
        .map(|(isa, half)| Cpu::with_units(isa, Units { half, ..Units::detect(isa) }, 2))
        .collect();
    let mut compared = 0;
    for seed in 0..200 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let context = Context::new(Some(&sample.weights), &profile);
        let graph = optimize(&sample.graph, &[], &context).unwrap();
        let exact = interpret_in::<f64>(&graph, &sample.weights, &inputs).unwrap();
        let graph = with_rounded_products(&graph);
        let expected = interpret_in::<f64>(&graph, &sample.weights, &inputs).unwrap();
        let Some(effect) = error(&exact, &expected) else { continue };
        compared += 1;
        for cpu in &cpus {
            let found = error(&run_in(cpu, &sample, &profile), &expected).unwrap();
            assert!(
                found <= 2e-3 + 2.0 * effect,
                "seed {seed} on {:?} {:?}: error {found}, rounding changes {effect}\n{graph}",
                cpu.isa(),
                cpu.half_unit()
            );
        }
    }
    assert!(compared >= 100, "{compared} of 200 graphs have outputs large enough");
}

/// Units whose linear layers and convolutions multiply bytes.
fn in_int8(bytes: ByteUnit, byte_attention: bool) -> Units {
    let byte_convolutions = ByteConvolutions::All;
    Units { half: HalfUnit::Widened, bytes, byte_attention, byte_convolutions }
}

/// Rounding to bytes changes a number by about four times as much as rounding to bf16.
#[test]
fn programs_in_int8_give_the_result_of_quantised_weights() {
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    let units = in_int8(ByteUnit::Vectors, true);
    let cpus: Vec<Cpu> =
        Isa::available().into_iter().map(|isa| Cpu::with_units(isa, units, 2)).collect();
    let one_thread = Cpu::with_units(Isa::detect(), units, 1);
    let mut attended = 0;
    for seed in 0..200 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let context = Context::new(Some(&sample.weights), &profile);
        let graph = optimize(&sample.graph, &[], &context).unwrap();
        if !graph.iter().any(|(_, node)| matches!(node.kind, Kind::Op(Op::Attention(_)))) {
            continue;
        }
        let expected = interpret_quantized(&graph, &sample.weights, &inputs).unwrap();
        let rounded = with_rounded_products(&graph);
        let rounded = interpret_in::<f64>(&rounded, &sample.weights, &inputs).unwrap();
        let Some(effect) = error(&rounded, &expected) else { continue };
        attended += 1;
        for cpu in &cpus {
            let found = error(&run_in(cpu, &sample, &profile), &expected).unwrap();
            assert!(
                found <= 1e-2 + 8.0 * effect,
                "seed {seed} on {:?}: error {found}, rounding to bf16 changes {effect}\n{graph}",
                cpu.isa(),
            );
        }
        let (one, two) =
            (run_in(&one_thread, &sample, &profile), run_in(&cpus[0], &sample, &profile));
        assert_eq!(bytes(&one), bytes(&two), "seed {seed} depends on the threads");
    }
    assert!(attended >= 30, "{attended} of 200 graphs attend");
}

/// A number near the middle of two bytes may be rounded to the other one, so results differ by parts of what the rounding itself
/// changes.
#[test]
fn programs_in_int8_give_the_result_of_quantised_convolutions() {
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    let units = ByteUnit::ALL.into_iter().filter(|unit| unit.is_available());
    let paths: Vec<(Isa, ByteUnit)> =
        units.flat_map(|unit| Isa::available().into_iter().map(move |isa| (isa, unit))).collect();
    let cpu = |&(isa, unit): &(Isa, ByteUnit), threads| {
        Cpu::with_units(isa, in_int8(unit, false), threads)
    };
    let cpus: Vec<[Cpu; 2]> = paths.iter().map(|path| [1, 7].map(|n| cpu(path, n))).collect();
    let mut convolved = 0;
    for seed in 0..800 {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let context = Context::new(Some(&sample.weights), &profile);
        let graph = optimize(&sample.graph, &[], &context).unwrap();
        let exact = interpret_in::<f64>(&graph, &sample.weights, &inputs).unwrap();
        let expected = interpret_quantized(&graph, &sample.weights, &inputs).unwrap();
        let Some(effect) = error(&exact, &expected).filter(|effect| *effect > 0.0) else {
            continue;
        };
        convolved += 1;
        for (path, cpus) in paths.iter().zip(&cpus) {
            let [found, again] = cpus.each_ref().map(|cpu| run_in(cpu, &sample, &profile));
            assert_eq!(bytes(&found), bytes(&again), "seed {seed} depends on the threads");
            let found = error(&found, &expected).unwrap();
            assert!(
                found <= 2e-3 + 0.5 * effect,
                "seed {seed} on {path:?}: error {found}, rounding changes {effect}\n{graph}",
            );
        }
    }
    assert!(convolved >= 30, "{convolved} of 800 graphs have quantised convolutions");
}
