//! Times SAM 2.1 tiny with random weights, step by step.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_cpu::Cpu;
use cutout_graph::cases::Random;
use cutout_graph::{Graph, Profile, Weights};
use cutout_sam::config::{MemoryForm, Sam2Config};
use cutout_sam::decoder::{DecoderImage, PromptShape};
use cutout_sam::memory::MaskSource;
use cutout_sam::sam2::{
    MemoryShape, decoder_graph, encoder_graph, image_side_graph, memory_attention_graph,
    memory_encoder_graph, memory_projection_graph, pointer_graph,
};
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
    drop(cpu.compile_program(graph, weights, &Profile::default()).unwrap());
    println!("{name}: compile {compile:?}, again {:?}", start.elapsed());
    let named = inputs(graph, &mut Random::new(3));
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
    let config = match std::env::args().nth(1).as_deref() {
        Some("large") => Sam2Config::large(MemoryForm::Sam2_1),
        Some(_) | None => Sam2Config::tiny(MemoryForm::Sam2_1),
    };
    let shape = |prompts| PromptShape { prompts, points: 2, masks: false };
    let decoder = |prompts, image| decoder_graph(&config, shape(prompts), image).unwrap();
    let bank = MemoryShape { objects: 1, frames: 7, pointers: 16 };
    let graphs = [
        ("encoder", encoder_graph(&config).unwrap(), 3),
        ("image side", image_side_graph(&config).unwrap(), 5),
        ("decoder, 1 prompt", decoder(1, DecoderImage::Shared), 10),
        ("decoder, 64 prompts", decoder(64, DecoderImage::Shared), 3),
        ("decoder, 1 object", decoder(1, DecoderImage::PerPrompt), 10),
        ("memory encoder", memory_encoder_graph(&config, 1, MaskSource::Predicted).unwrap(), 5),
        ("memory projection", memory_projection_graph(&config, 1).unwrap(), 5),
        ("memory attention", memory_attention_graph(&config, bank).unwrap(), 2),
        ("pointer", pointer_graph(&config, 1).unwrap(), 10),
    ];
    let mut numbers = Random::new(1);
    let mut tensors = HashMap::new();
    for (_, graph, _) in &graphs {
        for (path, id) in graph.parameters() {
            tensors
                .entry(path.to_owned())
                .or_insert_with(|| random(&graph.ty(id).shape, 0.1, &mut numbers));
        }
    }
    let weights = Weights::new(tensors);
    let cpu = Cpu::new(2);
    for (name, graph, rounds) in &graphs {
        time(name, &cpu, graph, &weights, *rounds);
    }
}
