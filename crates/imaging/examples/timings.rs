//! Times each step on this machine: `cargo run --release -p cutout-imaging --example timings`.

#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::time::{Duration, Instant};

use cutout_imaging::{
    DecodeLimits, Filter, Image, Rle, Size, Threshold, Upsampler, connected_regions, decode,
    encode_image, polygons, resize_pillow, resize_torch_bytes, resize_torch_floats, summarize,
    summarize_bits,
};
use cutout_parallel::Pool;

/// Prints the median time of nine runs after one warm-up run.
fn report<T>(name: &str, mut work: impl FnMut() -> T) -> T {
    let mut result = work();
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        result = work();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("{name:<44}{:>9.2} ms", times[4].as_secs_f64() * 1e3);
    result
}

/// A photo-like picture of 12 megapixels.
fn photo() -> Image {
    let size = Size::new(4000, 3000);
    let value = |i: usize| {
        ((i / 3 % 4000) / 16 + (i / 12_000) / 12 + i.wrapping_mul(2_654_435_761) % 7) as u8
    };
    Image::from_rgb(size, (0..36_000_000).map(value).collect()).expect("the length fits")
}

/// A mask as [`summarize_bits`] takes it, with counts of 0.
fn column_bits(rle: &Rle) -> Vec<i32> {
    let Size { width, height } = rle.size();
    let words = height.div_ceil(32);
    let mut row = vec![0; 2 + width * words];
    for position in rle.runs().flat_map(|(start, end)| start..end) {
        let (x, y) = (position / height, position % height);
        row[2 + x * words + y / 32] |= 1 << (y % 32);
    }
    row
}

fn main() {
    let image = photo();
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let aspect = Size::new(1024, 768);
    let _ = report("12 MP to 1024, Pillow bilinear", || {
        resize_pillow(&image, aspect, Filter::Bilinear, &pool)
    });
    let square = Size::square(1024);
    let _ = report("12 MP to 1024², Pillow bicubic", || {
        resize_pillow(&image, square, Filter::Bicubic, &pool)
    });
    let _ = report("12 MP to 1024², torch bytes", || {
        resize_torch_bytes(&image, square, Filter::Bilinear, &pool)
    });
    let _ = report("12 MP to 1024², torch floats", || {
        resize_torch_floats(&image, square, Filter::Bilinear, &pool)
    });

    let low = Size::square(256);
    let wave =
        |i: usize| ((i % 256) as f32 / 20.0).sin() * 6.0 + ((i / 256) as f32 / 31.0).cos() * 5.0;
    let logits: Vec<f32> = (0..low.width * low.height).map(wave).collect();
    let mapping = cutout_imaging::Mapping {
        original: Size::new(1500, 1000),
        content: Size::new(1024, 683),
        model: square,
    };
    let upsampler = Upsampler::through_model(low, &mapping).expect("valid sizes");
    let summary = report("256² logits to runs at 1500×1000", || {
        summarize(&upsampler, &logits, Threshold::default(), None)
    });
    let rle = summary.expect("the length fits").rle;
    let bits = column_bits(&rle);
    let _ = report("bits to runs at 1500×1000", || summarize_bits(rle.size(), &bits, None));
    println!("  area {}, {} runs", rle.area(), rle.counts().len());
    let mask = rle.to_mask().expect("memory for a mask");
    let _ = report("polygons of that mask", || polygons(&mask));
    let _ = report("connected regions of that mask", || {
        connected_regions(&mask, true, cutout_imaging::Connectivity::Eight)
    });
    let _ = report("compressed string of that mask", || rle.to_coco_string());
    let small = image.crop(0, 0, Size::new(1500, 1000)).expect("inside");
    let png = report("1.5 MP photo to PNG", || encode_image(&small)).expect("a valid size");
    let _ = report("1.5 MP PNG to photo", || decode(&png, "png", &DecodeLimits::default()));
}
