//! Times SAM 1 ViT-B with random weights, by kind of op; with the argument `steps`, step by step, and with `decoder`
//! without the encoder.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_cpu::{Cpu, StepTime};
use cutout_graph::cases::Random;
use cutout_graph::{Graph, Profile, Weights, passes};
use cutout_sam::config::Sam1Config;
use cutout_sam::sam1::{PromptShape, decoder_graph, encoder_graph, image_side_graph};
use cutout_tensor::{DType, Tensor};

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

fn main() {
    let config = Sam1Config::vit_b();
    let encoder = encoder_graph(&config).unwrap();
    let one = decoder_graph(&config, PromptShape { prompts: 1, points: 2, masks: false }).unwrap();
    let many =
        decoder_graph(&config, PromptShape { prompts: 16, points: 2, masks: false }).unwrap();
    let side = image_side_graph(&config).unwrap();
    let mut numbers = Random::new(1);
    let mut tensors = HashMap::new();
    for graph in [&encoder, &side, &one] {
        for (path, id) in graph.parameters() {
            tensors
                .entry(path.to_owned())
                .or_insert_with(|| random(&graph.ty(id).shape, 0.1, &mut numbers));
        }
    }
    let weights = Weights::new(tensors);
    let cpu = Cpu::new(2);
    if !std::env::args().any(|argument| argument == "decoder") {
        time("encoder", &cpu, &encoder, &weights, 3);
    }
    time("image side", &cpu, &side, &weights, 5);
    time("decoder, 1 prompt", &cpu, &one, &weights, 20);
    time("decoder, 16 prompts", &cpu, &many, &weights, 5);
}
