//! Times and memory of SAM 1 from a checkpoint to masks: `measure_sam1 CHECKPOINT [ROUNDS]`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::time::{Duration, Instant};

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Prompt, Sam};

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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a checkpoint");
    let rounds: usize = arguments.next().map_or(1, |rounds| rounds.parse().unwrap());
    let image = picture(Size::new(1200, 900));
    let sam = time("open", 1, || Sam::open(&path).unwrap());
    println!("{} on {}", sam.description(), sam.device());
    let scene = time("embed, first", 1, || sam.embed(&image).unwrap());
    let click = Prompt::point(520, 380);
    time("click, first", 1, || scene.segment(&click).unwrap().best().mask());
    let masks = time("click", 20 * rounds, || scene.segment(&click).unwrap());
    time("mask at picture size", 20 * rounds, || masks.best().mask());
    time("click and mask", 20 * rounds, || scene.segment(&click).unwrap().best().mask());
    let points: Vec<Prompt> =
        (0..64).map(|i| Prompt::point(i % 8 * 140 + 50, i / 8 * 100 + 50)).collect();
    time("64 points", 2 + rounds, || scene.segment_all(&points).unwrap());
    if rounds > 1 {
        time("embed", rounds, || sam.embed(&image).unwrap());
    }
}
