//! Matrix products on the shapes of the models, as a share of the multiply-add ceiling of the same run.
//!
//! `cargo run --release -p cutout-cpu --example gemm_bench -- [threads] [avx512|avx2|portable]`
#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::time::Instant;

use cutout_cpu::ceiling;
use cutout_cpu::gemm::int8::{PackedInt8, Scales, gemm_int8, quantize_weight};
use cutout_cpu::gemm::{
    Activation, Epilogue, Output, PackedWeights, RowMajor, WeightData, WeightView, gemm,
};
use cutout_cpu::memory::AlignedBuffer;
use cutout_cpu::pool::Pool;
use cutout_cpu::simd::Isa;

/// Rows, depth and columns.
const SHAPES: [[usize; 3]; 11] = [
    [4096, 768, 2304],
    [4096, 768, 3072],
    [4096, 3072, 768],
    [4096, 768, 768],
    [5184, 1024, 4096],
    [65536, 96, 288],
    [16384, 192, 768],
    [4096, 64, 28736],
    [7, 256, 4096],
    [7, 256, 2048],
    [1, 256, 4096],
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let threads = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let isa = match arguments.get(2).map(String::as_str) {
        Some("avx2") => Isa::Avx2,
        Some("portable") => Isa::Portable,
        Some(_) | None => Isa::detect(),
    };
    let only = arguments.get(3).and_then(|text| text.parse::<usize>().ok());
    let ceiling = ceiling::fma_gflops(isa, threads);
    let copy = ceiling::copy_bandwidth(threads);
    let dot = ceiling::dot_gops(isa, threads);
    println!(
        "{isa:?}, {threads} threads: {ceiling:.1} GFLOP/s, {dot:.1} GOP/s, copy {copy:.1} GB/s"
    );
    println!(
        "{:>18} {:>7} {:>8} {:>7} {:>8} {:>8} {:>6} {:>8}",
        "shape", "tile", "GFLOP/s", "share", "GELU", "int8", "times", "blocks"
    );
    let pool = Pool::new(threads);
    for (index, [rows, depth, columns]) in SHAPES.into_iter().enumerate() {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        let problem = Problem::new(isa, [rows, depth, columns]);
        let plain = problem.median_gflops(&pool, Activation::Identity);
        let gelu = problem.median_gflops(&pool, Activation::Gelu);
        let channels = problem.median_gops(&pool, &problem.channels);
        let blocks = problem.median_gops(&pool, &problem.blocks);
        let tile = problem.weights.tile();
        println!(
            "{:>18} {:>7} {plain:>8.1} {:>5.1} % {gelu:>8.1} {channels:>8.1} {:>6.2} {blocks:>8.1}",
            format!("{rows}x{depth}x{columns}"),
            format!("{}x{}", tile.rows, tile.columns()),
            100.0 * plain / ceiling,
            channels / plain,
        );
    }
}

struct Problem {
    shape: [usize; 3],
    left: AlignedBuffer<f32>,
    weights: PackedWeights,
    channels: PackedInt8,
    blocks: PackedInt8,
    bias: AlignedBuffer<f32>,
}

impl Problem {
    fn new(isa: Isa, shape: [usize; 3]) -> Problem {
        let [rows, depth, columns] = shape;
        let weight = noise(2, columns * depth);
        let view = WeightView::output_major(WeightData::F32(&weight), columns, depth);
        let weights = PackedWeights::pack(isa, &view);
        let quantized = |granularity| {
            PackedInt8::pack(isa, &quantize_weight(&weight, columns, depth, granularity).view())
        };
        Problem {
            shape,
            left: noise(1, rows * depth),
            weights,
            channels: quantized(Scales::PerRow),
            blocks: quantized(Scales::PerBlock),
            bias: noise(3, columns),
        }
    }

    fn median_gflops(&self, pool: &Pool, activation: Activation) -> f64 {
        let [rows, depth, columns] = self.shape;
        let mut output = AlignedBuffer::zeroed(rows * columns);
        let left = RowMajor::new(&self.left, rows, depth, depth);
        let bias = (activation != Activation::Identity).then_some(&*self.bias);
        let epilogue = Epilogue { bias, activation, ..Epilogue::NONE };
        let seconds = median_seconds(|| {
            gemm(pool, &left, &self.weights, &epilogue, Output::new(&mut output, columns));
        });
        2.0 * (rows * depth * columns) as f64 / seconds / 1e9
    }
}

impl Problem {
    fn median_gops(&self, pool: &Pool, weights: &PackedInt8) -> f64 {
        let [rows, depth, columns] = self.shape;
        let mut output = AlignedBuffer::zeroed(rows * columns);
        let left = RowMajor::new(&self.left, rows, depth, depth);
        let epilogue = Epilogue { bias: Some(&self.bias), ..Epilogue::NONE };
        let seconds = median_seconds(|| {
            gemm_int8(pool, &left, weights, &epilogue, Output::new(&mut output, columns));
        });
        2.0 * (rows * depth * columns) as f64 / seconds / 1e9
    }
}

fn median_seconds(mut body: impl FnMut()) -> f64 {
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (started.elapsed().as_secs_f64() < 0.7 && times.len() < 2000) {
        let begun = Instant::now();
        body();
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn noise(seed: u64, len: usize) -> AlignedBuffer<f32> {
    let mut state = seed;
    let mut buffer = AlignedBuffer::zeroed(len);
    for value in buffer.iter_mut() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
    }
    buffer
}
