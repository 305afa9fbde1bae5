//! Times SAM 1 ViT-B with random weights, step by step.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_cpu::Cpu;
use cutout_graph::cases::Random;
use cutout_graph::{Graph, Profile, Weights};
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
    let mut best = Duration::MAX;
    let mut table: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let (_, times) = program.run_timed(&given).unwrap();
        let elapsed = start.elapsed();
        if elapsed < best {
            best = elapsed;
            table.clear();
            for step in times {
                let entry = table.entry(step.op).or_default();
                entry.0 += 1;
                entry.1 += step.time;
            }
        }
    }
    println!("{name}: best {best:?}");
    let mut rows: Vec<_> = table.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1.1));
    for (op, (count, time)) in rows {
        println!("  {op:<20}{count:>5}  {time:?}");
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
    time("encoder", &cpu, &encoder, &weights, 3);
    time("image side", &cpu, &side, &weights, 5);
    time("decoder, 1 prompt", &cpu, &one, &weights, 20);
    time("decoder, 16 prompts", &cpu, &many, &weights, 5);
}
