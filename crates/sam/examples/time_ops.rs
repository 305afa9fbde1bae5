//! Times the graphs of a model by kind of op: `time_ops MODEL [steps] [PART]`, where MODEL is `vit_b`, `sam2.1_tiny`,
//! `sam2.1_large` or `sam3`, with random weights, or a checkpoint of SAM 2 or 2.1, with its own; with `steps`, each step with its
//! speed; with a part's name, that part alone.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_cpu::{Cpu, StepTime};
use cutout_graph::{Graph, Profile, Weights, passes};
use cutout_sam::config::{MemoryForm, Sam1Config, Sam2Config, Sam3Config};
use cutout_sam::decoder::{DecoderImage, PromptShape};
use cutout_sam::memory::MaskSource;
use cutout_sam::{sam1, sam2, sam3};
use cutout_tensor::{DType, Tensor};
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
            let tensor = random(&ty.shape, 2.0, numbers);
            let tensor = if ty.dtype == DType::I64 {
                Tensor::from_vec(ty.shape.clone(), vec![2i64; ty.shape.elements()]).unwrap()
            } else {
                tensor
            };
            (name.to_owned(), tensor)
        })
        .collect()
}

fn time(name: &str, cpu: &Cpu, graph: &Graph, weights: &Weights, rounds: usize) {
    let start = Instant::now();
    let program = cpu.compile_program(graph, weights, &Profile::default()).unwrap();
    let compile = start.elapsed();
    let start = Instant::now();
    let program2 = cpu.compile_program(graph, weights, &Profile::default()).unwrap();
    println!("{name}: compile {compile:?}, again {:?}", start.elapsed());
    drop(program2);
    let mut numbers = Random::new(3);
    let named = inputs(graph, &mut numbers);
    let given: Vec<(&str, &Tensor)> = named.iter().map(|(n, t)| (n.as_str(), t)).collect();
    // Of each step the shortest time: what it takes when nothing else runs.
    let (mut best, mut steps) = (Duration::MAX, Vec::<StepTime>::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let (_, times) = program.run_timed(&given).unwrap();
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
    if std::env::args().any(|argument| argument == "steps") {
        let profile = Profile::default();
        let context = passes::Context::new(Some(weights), &profile);
        print_steps(&passes::optimize(graph, &context).unwrap(), &steps);
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

/// Each step with what it reads and writes and how fast that is, in order.
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
type Part = (&'static str, Graph, usize);

/// Prompts of one click each.
fn clicks(prompts: usize) -> PromptShape {
    PromptShape { prompts, points: 2, masks: false }
}

fn sam1_parts(config: &Sam1Config) -> Vec<Part> {
    vec![
        ("encoder", sam1::encoder_graph(config).unwrap(), 3),
        ("image_side", sam1::image_side_graph(config).unwrap(), 5),
        ("decoder", sam1::decoder_graph(config, clicks(1)).unwrap(), 20),
        ("decoder_16", sam1::decoder_graph(config, clicks(16)).unwrap(), 5),
    ]
}

fn sam2_parts(config: &Sam2Config) -> Vec<Part> {
    let decoder = |prompts, image| sam2::decoder_graph(config, clicks(prompts), image).unwrap();
    let bank = sam2::MemoryShape { objects: 1, frames: 7, pointers: 16 };
    let memory = sam2::memory_encoder_graph(config, 1, MaskSource::Predicted);
    vec![
        ("encoder", sam2::encoder_graph(config).unwrap(), 9),
        ("image_side", sam2::image_side_graph(config).unwrap(), 5),
        ("decoder", decoder(1, DecoderImage::Shared), 20),
        ("decoder_16", decoder(16, DecoderImage::Shared), 5),
        ("decoder_object", decoder(1, DecoderImage::PerPrompt), 20),
        ("memory_encoder", memory.unwrap(), 5),
        ("memory_projection", sam2::memory_projection_graph(config, 1).unwrap(), 5),
        ("memory_attention", sam2::memory_attention_graph(config, bank).unwrap(), 2),
        ("pointer", sam2::pointer_graph(config, 1).unwrap(), 20),
    ]
}

fn sam3_parts(config: &Sam3Config) -> Vec<Part> {
    let phrase = sam3::TextShape { tokens: 4, kept: 4 };
    let nothing = sam3::GeometryShape { boxes: 0, points: 0 };
    let prompt = sam3::DetectorShape { text: phrase.kept, geometry: nothing.tokens() };
    vec![
        ("trunk", sam3::trunk_graph(config).unwrap(), 2),
        ("image_side", sam3::image_side_graph(config).unwrap(), 3),
        ("clicks", sam3::clicks_graph(config).unwrap(), 3),
        ("text", sam3::text_graph(config, phrase).unwrap(), 5),
        ("geometry", sam3::geometry_graph(config, nothing).unwrap(), 5),
        ("detector", sam3::detector_graph(config, prompt).unwrap(), 3),
    ]
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

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut loaded = None;
    let parts = match arguments.first().map(String::as_str) {
        Some("vit_b") => sam1_parts(&Sam1Config::vit_b()),
        Some("sam2.1_tiny") => sam2_parts(&Sam2Config::tiny(MemoryForm::Sam2_1)),
        Some("sam2.1_large") => sam2_parts(&Sam2Config::large(MemoryForm::Sam2_1)),
        Some("sam3") => sam3_parts(&Sam3Config::published()),
        Some(file) => {
            let model = loaded.insert(sam2::load(&Checkpoint::open(file).unwrap()).unwrap());
            sam2_parts(&model.config)
        }
        None => {
            panic!("the model: vit_b, sam2.1_tiny, sam2.1_large, sam3 or a checkpoint of SAM 2")
        }
    };
    let wanted: Vec<&String> =
        arguments.iter().skip(1).filter(|argument| *argument != "steps").collect();
    let cpu = Cpu::new(std::thread::available_parallelism().map_or(1, usize::from));
    for (name, graph, rounds) in &parts {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            match &loaded {
                Some(model) => time(name, &cpu, graph, &model.weights, *rounds),
                None => time(name, &cpu, graph, &weights(graph), *rounds),
            }
        }
    }
}
