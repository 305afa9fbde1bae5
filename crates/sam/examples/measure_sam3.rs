//! Times and memory of SAM 3 from a checkpoint to objects and masks: `measure_sam3 CHECKPOINT [ROUNDS]`. A checkpoint that is
//! not there is written first, of the published size and with random weights: 3.4 GB.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cutout_sam::config::Sam3Config;
use cutout_sam::decoder::PromptShape;
use cutout_sam::imaging::{Image, Size};
use cutout_sam::sam3::{
    DetectorShape, GeometryShape, TextShape, click_decoder_graph, click_image_side_graph,
    clicks_graph, detector_graph, geometry_graph, image_side_graph, text_graph, trunk_graph,
};
use cutout_sam::{Find, Prompt, Sam};
use cutout_tensor::{Tensor, TensorType};
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

/// A picture with something to see in it.
fn picture(size: Size) -> Image {
    let pixel = |i: usize| [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8];
    let pixels = (0..size.width * size.height).flat_map(pixel).collect();
    Image::from_rgb(size, pixels).unwrap()
}

/// What the system says of this process's memory, in MiB: the largest so far, now, and of that files and own memory.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mib = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
        kib.map_or("?".to_owned(), |kib| (kib / 1024).to_string())
    };
    let [peak, now, file, own] = ["VmHWM", "VmRSS", "RssFile", "RssAnon"].map(mib);
    format!("peak {peak} MiB, now {now} (files {file}, own {own})")
}

/// Runs `work` some times and prints the shortest and the middle time.
fn time<T>(name: &str, rounds: usize, mut work: impl FnMut() -> T) -> T {
    let mut times: Vec<Duration> = Vec::new();
    let mut last = None;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        last = Some(work());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (best, middle) = (times[0], times[times.len() / 2]);
    println!("{name:<28} best {best:>10.2?}  median {middle:>10.2?}   {}", memory());
    last.unwrap()
}

/// Names and types of all weights of the published size.
fn weights() -> BTreeMap<String, TensorType> {
    let config = &Sam3Config::published();
    let graphs = [
        trunk_graph(config),
        image_side_graph(config),
        clicks_graph(config),
        click_image_side_graph(config),
        click_decoder_graph(config, PromptShape { prompts: 1, points: 1, masks: true }),
        text_graph(config, TextShape { tokens: 1, kept: 1 }),
        geometry_graph(config, GeometryShape { boxes: 1, points: 1 }),
        detector_graph(config, DetectorShape { text: 1, geometry: 1 }),
    ];
    let mut weights = BTreeMap::new();
    for graph in graphs.map(Result::unwrap) {
        weights
            .extend(graph.parameters().map(|(name, id)| (name.to_owned(), graph.ty(id).clone())));
    }
    weights
}

/// Noise that neither dies out nor explodes on its way through the layers; norms around one.
fn noise(name: &str, ty: &TensorType) -> Tensor {
    let fan_in: usize = ty.shape.iter().skip(1).product();
    let is_norm = ty.shape.len() == 1 && name.ends_with("weight");
    let (middle, scale) = if is_norm { (1.0, 0.2) } else { (0.0, 1.5 / (fan_in as f32).sqrt()) };
    let mut state = name.bytes().fold(1u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        middle + scale * ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    let values = (0..ty.shape.elements()).map(|_| next()).collect();
    Tensor::from_vec::<f32>(ty.shape.clone(), values).unwrap()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a checkpoint");
    let rounds: usize = arguments.next().map_or(1, |rounds| rounds.parse().unwrap());
    if !Path::new(&path).exists() {
        let weights = weights();
        let deferred = weights.iter().map(|(name, ty)| {
            OutgoingTensor::deferred(name, ty.clone(), move || Ok(noise(name, ty)))
        });
        let tensors: Vec<OutgoingTensor<'_>> = deferred.collect();
        time("write random weights", 1, || {
            write_safetensors(&path, &tensors, &Metadata::new()).unwrap()
        });
        println!("the memory of the rest is told right when the file is there from the start");
    }
    let image = picture(Size::new(1200, 900));
    let sam = time("open", 1, || Sam::open(&path).unwrap());
    println!("{} on {}", sam.description(), sam.device());
    let scene = time("embed, first", 1, || sam.embed(&image).unwrap());
    let find = |phrase: &str| scene.find(Find::phrase(phrase).threshold(0.0)).unwrap().len();
    time("find, first", 1, || find("a yellow bus"));
    time("find, another phrase", rounds, || find("the red car"));
    time("find, a longer phrase", 1, || find("a person in a striped shirt"));
    time("find, known phrase", rounds, || find("a yellow bus"));
    let click = Prompt::point(520, 380);
    time("click, first", 1, || scene.segment(&click).unwrap().best().mask());
    time("click", 20 * rounds, || scene.segment(&click).unwrap());
    let points: Vec<Prompt> =
        (0..64).map(|i| Prompt::point(i % 8 * 140 + 50, i / 8 * 100 + 50)).collect();
    time("64 points", rounds, || scene.segment_all(&points).unwrap());
    if rounds > 1 {
        time("embed", rounds, || sam.embed(&image).unwrap());
    }
}
