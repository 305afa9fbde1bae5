//! Times the graphs of a model by kind of op: `time_ops MODEL [steps] [PART]`, where MODEL is `vit_b`, `sam2.1_tiny`,
//! `sam2.1_large` or `sam3`, with random weights, or a checkpoint, with its own; with `steps`, each step with its speed; with a
//! part's name, that part alone. With `cuda` it runs on the first GPU, in half precision as usual there; `compare` then compares the
//! outputs with the CPU's. `f32`, `f16`, `bf16` and `int8` choose another precision; of several, each is timed in turn.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_graph::{
    Backend, DeviceValue, Graph, Port, Precision, Profile, Program, StepTime, Weights, passes,
};
use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{
    BankShape, Decode, Detect, Encode, EncodeText, FindFeatures, Follow, PrepareImage, Project,
};
use cutout_sam::{device, load};
use cutout_tensor::{DType, Tensor, Tolerance, compare};
use cutout_testing::Random;
use cutout_weights::Checkpoint;

fn random(shape: &cutout_tensor::Shape, scale: f64, random: &mut Random) -> Tensor {
    let values = (0..shape.elements()).map(|_| ((random.unit() - 0.5) * scale) as f32).collect();
    Tensor::from_vec(shape.clone(), values).unwrap()
}

fn inputs(graph: &Graph, numbers: &mut Random) -> Vec<(String, Tensor)> {
    graph
        .inputs()
        .map(|(name, id)| {
            let ty = graph.ty(id);
            let tensor = if ty.dtype == DType::I64 {
                Tensor::from_vec(ty.shape.clone(), vec![2i64; ty.shape.elements()]).unwrap()
            } else {
                random(&ty.shape, 2.0, numbers).cast(ty.dtype).unwrap()
            };
            (name.to_owned(), tensor)
        })
        .collect()
}

/// The largest relative error of an output in the second norm, against the CPU.
fn compare_with_cpu(
    name: &str,
    program: &dyn Program,
    graph: &Graph,
    weights: &Weights,
    given: &[(&str, &Tensor)],
) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = device::backends(threads).remove(0);
    let expected =
        cpu.compile(graph, weights, &Profile::default()).unwrap().run_named(given).unwrap();
    let (first, second) = (program.run_named(given).unwrap(), program.run_named(given).unwrap());
    for (((output, actual), (_, again)), (_, expected)) in first.iter().zip(&second).zip(&expected)
    {
        let difference = compare(actual, expected, Tolerance::Stage).unwrap();
        let same = actual.as_bytes().unwrap() == again.as_bytes().unwrap();
        println!(
            "{name}.{output}: relative error {:.2e}{}",
            difference.normalised_square_error.sqrt(),
            if same { "" } else { ", TWO RUNS DIFFER" },
        );
    }
}

/// Runs without a clock between the steps, inputs on the device, waiting at the end.
fn time_runs(name: &str, backend: &dyn Backend, program: &dyn Program, given: &[(&str, &Tensor)]) {
    let ports = program.inputs();
    let find = |port: &Port| given.iter().find(|(name, _)| *name == port.name).unwrap().1;
    let values: Vec<DeviceValue> =
        ports.iter().map(|port| program.upload(find(port)).unwrap()).collect();
    let values: Vec<&DeviceValue> = values.iter().collect();
    let mut times = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        drop(program.run(&values).unwrap());
        backend.synchronize().unwrap();
        times.push(start.elapsed());
    }
    let start = Instant::now();
    for _ in 0..20 {
        drop(program.run(&values).unwrap());
    }
    backend.synchronize().unwrap();
    let many = start.elapsed() / 20;
    times.sort();
    println!("{name}: run {:?}, back to back {many:?}", times[times.len() / 2]);
}

fn time(
    name: &str,
    (backend, profile): (&dyn Backend, &Profile),
    graph: &Graph,
    weights: &Weights,
    rounds: usize,
) {
    let start = Instant::now();
    let program = backend.compile(graph, weights, profile).unwrap();
    let compile = start.elapsed();
    let start = Instant::now();
    let program2 = backend.compile(graph, weights, profile).unwrap();
    println!("{name}: compile {compile:?}, again {:?}", start.elapsed());
    drop(program2);
    let mut numbers = Random::new(3);
    let named = inputs(graph, &mut numbers);
    let given: Vec<(&str, &Tensor)> = named.iter().map(|(n, t)| (n.as_str(), t)).collect();
    if flag("compare") {
        compare_with_cpu(name, &*program, graph, weights, &given);
    }
    if flag("cuda") {
        time_runs(name, backend, &*program, &given);
    }
    // Minimum over all rounds for each step, to exclude interference.
    let (mut best, mut steps) = (Duration::MAX, Vec::<StepTime>::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let (_, times) = program.run_named_timed(&given).unwrap();
        best = best.min(start.elapsed());
        for (index, step) in times.into_iter().enumerate() {
            match steps.get_mut(index) {
                Some(known) => known.time = known.time.min(step.time),
                None => steps.push(step),
            }
        }
    }
    let sum: Duration = steps.iter().map(|step| step.time).sum();
    println!("{name}: best {best:?}, best steps {sum:?}");
    if flag("steps") {
        let context = passes::Context::new(Some(weights), profile);
        print_steps(&passes::optimize(graph, backend.passes(), &context).unwrap(), &steps);
    } else {
        print_kinds(&steps);
    }
}

/// Each kind of op with its share, the longest first.
fn print_kinds(times: &[StepTime]) {
    let mut table: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for step in times {
        let entry = table.entry(step.op).or_default();
        entry.0 += 1;
        entry.1 += step.time;
    }
    let mut rows: Vec<_> = table.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1.1));
    for (op, (count, time)) in rows {
        println!("  {op:<20}{count:>5}  {time:?}");
    }
}

/// Prints each step with its types, FLOP/s and bandwidth.
fn print_steps(graph: &Graph, times: &[StepTime]) {
    for step in times {
        let seconds = step.time.as_secs_f64();
        let cost = graph.cost(step.node);
        let types: Vec<String> =
            graph.input_types(step.node).iter().map(ToString::to_string).collect();
        println!(
            "  {:<16}{:>9.3} ms {:>7.1} GFLOP/s {:>6.1} GB/s  {} -> {}  ({})",
            step.op,
            seconds * 1e3,
            cost.flops as f64 / seconds / 1e9,
            cost.bytes as f64 / seconds / 1e9,
            types.join(", "),
            graph.ty(step.node),
            graph.node(step.node).origin,
        );
    }
}

/// A graph with its name, and how often it is run.
type NamedGraph = (&'static str, Graph, usize);

fn graph<P: Part>(config: &ModelConfig, part: P) -> Graph {
    graph_of(&part, config, Stages::Hidden).unwrap().0
}

/// The parts that a model has.
fn graphs(config: &ModelConfig) -> Vec<NamedGraph> {
    let mut graphs = vec![("encoder", graph(config, Encode { pictures: 1 }), 3)];
    if config.decoder.is_some() {
        let many = |prompts| Decode { prompts, ..Decode::ONE_CLICK };
        graphs.extend([
            ("prepare_image", graph(config, PrepareImage), 5),
            ("decoder", graph(config, Decode::ONE_CLICK), 20),
            ("decoder_16", graph(config, many(16)), 5),
            ("decoder_64", graph(config, many(64)), 5),
        ]);
    }
    if config.memory.is_some() {
        let follow = |objects| Follow { bank: BankShape::kept(objects, 7, 16), remember: true };
        graphs.extend([
            ("follow", graph(config, follow(1)), 3),
            ("follow_4", graph(config, follow(4)), 2),
            ("follow_16", graph(config, follow(16)), 1),
            ("project", graph(config, Project), 5),
        ]);
    }
    if config.finder.is_some() {
        graphs.extend([
            ("find_features", graph(config, FindFeatures), 3),
            ("text", graph(config, EncodeText { tokens: 4, kept: 4 }), 5),
            ("detector", graph(config, Detect { text: 4, exemplars: 1 }), 3),
        ]);
    }
    graphs
}

/// Random weights for one part.
fn weights(graph: &Graph) -> Weights {
    let mut numbers = Random::new(1);
    let mut tensors = HashMap::new();
    for (path, id) in graph.parameters() {
        tensors.insert(path.to_owned(), random(&graph.ty(id).shape, 0.1, &mut numbers));
    }
    Weights::new(tensors)
}

fn flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

const FLAGS: [&str; 7] = ["steps", "cuda", "f32", "f16", "bf16", "int8", "compare"];

/// The profiles that the flags ask for, with their names.
fn profiles() -> Vec<(&'static str, Profile)> {
    let names = [
        ("f32", Precision::F32),
        ("f16", Precision::F16),
        ("bf16", Precision::Bf16),
        ("int8", Precision::Int8),
    ];
    let mut asked: Vec<_> = names.into_iter().filter(|(name, _)| flag(name)).collect();
    if asked.is_empty() {
        asked.push(("", Precision::Auto));
    }
    let settled = |precision| {
        device::settled_profile(Profile { precision, ..Profile::default() }, flag("cuda"))
    };
    asked.into_iter().map(|(name, precision)| (name, settled(precision))).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (config, loaded) = match arguments.first().map(String::as_str) {
        Some("vit_b") => (ModelConfig::sam1_vit_b(), None),
        Some("vit_h") => (ModelConfig::sam1_vit_h(), None),
        Some("sam2.1_tiny") => (ModelConfig::sam2_tiny(MemoryForm::Sam2_1), None),
        Some("sam2.1_large") => (ModelConfig::sam2_large(MemoryForm::Sam2_1), None),
        Some("sam3") => (ModelConfig::sam3(), None),
        Some(file) => {
            let (config, weights) = load(&Checkpoint::open(file).unwrap()).unwrap();
            (config, Some(weights))
        }
        None => panic!("the model: vit_b, sam2.1_tiny, sam2.1_large, sam3 or a checkpoint"),
    };
    let wanted: Vec<&String> =
        arguments.iter().skip(1).filter(|argument| !FLAGS.contains(&argument.as_str())).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut backends = device::backends(threads);
    let backend = if flag("cuda") { backends.remove(1) } else { backends.remove(0) };
    for (name, graph, rounds) in &graphs(&config) {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let random = loaded.is_none().then(|| weights(graph));
        let Some(weights) = loaded.as_ref().or(random.as_ref()) else { continue };
        for (precision, profile) in &profiles() {
            let name = format!("{name} {precision}");
            time(name.trim_end(), (&*backend, profile), graph, weights, *rounds);
        }
    }
}
