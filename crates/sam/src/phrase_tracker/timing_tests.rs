//! Times what the host does for a frame at the published size, without a model:
//! `cargo test --release -p cutout-sam --lib host_part -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cutout_imaging::{Size, Upsampler, runs_above_zero};
use cutout_parallel::Pool;

use super::matching::{Detected, Tracked, associate, suppress_duplicates};
use super::options::PhraseOptions;
use super::rules::{PhraseRules, Policy};
use super::shrinking::areas;
use crate::bits::BitMask;
use crate::masks::{clear_islands, fill_holes};

const SIDE: usize = 288;
const VIDEO: Size = Size { width: 1280, height: 720 };
const OBJECTS: usize = 5;

/// A disc with a ragged edge.
fn logits(number: usize) -> Vec<f32> {
    let (left, top) = (40.0 + 50.0 * (number % 5) as f32, 60.0 + 40.0 * (number / 5 % 4) as f32);
    let logit = |pixel: usize| {
        let (x, y) = ((pixel % SIDE) as f32, (pixel / SIDE) as f32);
        let wave = (x * 0.7 + number as f32).sin() * (y * 0.9).cos() * 3.0;
        (36.0 - (x - left).hypot(y - top)) * 0.5 + wave
    };
    (0..SIDE * SIDE).map(logit).collect()
}

/// Runs steps of a frame and keeps their times.
#[derive(Default)]
struct Clock {
    times: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn time<T>(&mut self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = black_box(work());
        self.times.push((step, start.elapsed()));
        result
    }
}

/// One frame, in the order of the tracker.
fn frame(detections: &[Vec<f32>], objects: &[Vec<f32>], pool: &Pool) -> Clock {
    let mut clock = Clock::default();
    let options = PhraseOptions::default();
    let policy = Policy { options: &options, rules: PhraseRules::of(None) };
    let detected: Vec<Detected> = clock.time("candidates", || {
        let detected = |logits: &Vec<f32>| {
            let mask = BitMask::of(logits);
            Detected { score: 0.9, mask, central: true }
        };
        pool.map(detections, detected)
    });
    clock.time("duplicates", || suppress_duplicates(&detected, policy));
    let followed = clock.time("holes", || {
        pool.map(objects, |logits| {
            let mut logits = logits.clone();
            fill_holes(&mut logits, SIDE, 16, 0.1).unwrap();
            clear_islands(&mut logits, SIDE, 16, -0.1).unwrap();
            logits
        })
    });
    clock.time("matching", || {
        let tracked = |(id, logits): (usize, &Vec<f32>)| Tracked { id, mask: BitMask::of(logits) };
        let tracks = || followed.iter().enumerate().map(tracked).collect::<Vec<_>>();
        (associate(&detected, &tracks(), policy), tracks())
    });
    let masks: Vec<&[f32]> = followed.iter().map(|logits| &logits[..]).collect();
    clock.time("areas", || areas(&masks, [SIDE, 4 * SIDE], pool).unwrap());
    let upsampler = Upsampler::direct(Size::square(SIDE), VIDEO).unwrap();
    clock.time("runs", || {
        pool.map(&followed, |logits| runs_above_zero(&upsampler, logits).unwrap())
    });
    clock
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "a measurement")]
fn host_part_of_a_frame() {
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let objects: Vec<Vec<f32>> = (0..OBJECTS).map(logits).collect();
    for count in [OBJECTS, 200] {
        let detections: Vec<Vec<f32>> = (0..count).map(logits).collect();
        let rounds: Vec<Clock> = (0..9).map(|_| frame(&detections, &objects, &pool)).collect();
        let mut sum = Duration::ZERO;
        for step in 0..rounds[0].times.len() {
            let mut times: Vec<Duration> = rounds.iter().map(|it| it.times[step].1).collect();
            times.sort_unstable();
            sum += times[4];
            println!("{count} detections, {:<11}{:>8.2?}", rounds[0].times[step].0, times[4]);
        }
        println!("{count} detections, together  {sum:>8.2?}");
    }
}
