//! Times this decoder and the one of `image` (zune-jpeg) in turn: `cargo run --release -p cutout-jpeg --example time_jpeg -- FILE...`.

#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::hint::black_box;
use std::io::Cursor;
use std::time::{Duration, Instant};

use cutout_jpeg::Decoder;
use image::{DynamicImage, codecs::jpeg::JpegDecoder};

const ROUNDS: usize = 15;

fn timed(work: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn main() {
    println!("{:<32}{:>20}{:>20}", "least and median of 15, in turn", "cutout", "zune-jpeg");
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("a readable file");
        let mut ours = || {
            let picture = Decoder::new(&bytes).and_then(Decoder::decode);
            black_box(picture.expect("a valid file").rgb);
        };
        let mut theirs = || {
            let decoder = JpegDecoder::new(Cursor::new(&bytes)).expect("a valid file");
            let picture = DynamicImage::from_decoder(decoder).expect("a valid file");
            black_box(picture.into_rgb8());
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            first.push(timed(&mut ours));
            second.push(timed(&mut theirs));
        }
        first.sort_unstable();
        second.sort_unstable();
        let shown = |times: &[Duration]| {
            let [least, median] =
                [times[0], times[ROUNDS / 2]].map(|time| time.as_secs_f64() * 1e3);
            format!("{least:.1}, {median:.1} ms")
        };
        println!("{path:<32}{:>20}{:>20}", shown(&first), shown(&second));
    }
}
