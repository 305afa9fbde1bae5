//! Image ops on the shapes of the models: convolutions as a share of the multiply-add ceiling and of the plain product of
//! the same size (both at the fastest tenth of their runs, which other work on the machine disturbs least), the others as
//! a share of the copy bandwidth.
//!
//! `cargo run --release -p cutout-cpu --example conv_bench -- [threads] [avx512|avx2|portable] [part of a name]`
#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::collections::HashMap;
use std::time::Instant;

use cutout_cpu::gemm::{Epilogue, Output, PackedWeights, RowMajor, WeightData, WeightView, gemm};
use cutout_cpu::memory::AlignedBuffer;
use cutout_cpu::pool::Pool;
use cutout_cpu::{Cpu, Isa, ceiling};
use cutout_graph::ops::{Conv2d, ConvTranspose2d, MaxPool2d, Resize, ResizeMode, RoiAlign};
use cutout_graph::{Builder, Op, Profile, Weights};
use cutout_tensor::{DType, Tensor};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let threads = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let isa = match arguments.get(2).map(String::as_str) {
        Some("avx2") => Isa::Avx2,
        Some("portable") => Isa::Portable,
        Some(_) | None => Isa::detect(),
    };
    let ceiling = ceiling::fma_gflops(isa, threads);
    let copy = ceiling::copy_bandwidth(threads);
    println!("{isa:?}, {threads} threads: {ceiling:.1} GFLOP/s, copy {copy:.1} GB/s");
    let machine = Machine {
        cpu: Cpu::with_isa(isa, threads),
        pool: Pool::new(threads),
        wanted: arguments.get(3).cloned().unwrap_or_default(),
    };
    products(&machine, ceiling);
    moves(&machine, copy);
}

struct Machine {
    cpu: Cpu,
    pool: Pool,
    /// What the names of the cases to run contain.
    wanted: String,
}

/// Convolutions: name, op, image, weight, and the rows, depth and columns of the product they are.
fn products(machine: &Machine, ceiling: f64) {
    let up: Op = ConvTranspose2d::new(2, 0).into();
    let conv = |stride, padding| -> Op { Conv2d::new(stride, padding).into() };
    let by_channel =
        |groups, padding| -> Op { Conv2d { groups, ..Conv2d::new(1, padding) }.into() };
    println!(
        "{:>26} {:>8} {:>16} {:>7} {:>9}",
        "convolution", "GFLOP/s", "10 % .. 90 %", "share", "product"
    );
    let cases = [
        ("3x3 256-256 64x64", conv(1, 1), [1, 64, 64, 256], [256, 256, 3, 3]),
        ("3x3 256-256 72x72", conv(1, 1), [1, 72, 72, 256], [256, 256, 3, 3]),
        ("16x16/16 3-768 1024", conv(16, 0), [1, 1024, 1024, 3], [768, 3, 16, 16]),
        ("14x14/14 3-1024 1008", conv(14, 0), [1, 1008, 1008, 3], [1024, 3, 14, 14]),
        ("7x7/4 3-96 1024", conv(4, 3), [1, 1024, 1024, 3], [96, 3, 7, 7]),
        ("1x1 768-256 64x64", conv(1, 0), [1, 64, 64, 768], [256, 768, 1, 1]),
        ("3x3/2 16-64 256x256", conv(2, 1), [1, 256, 256, 16], [64, 16, 3, 3]),
        ("3x3/2 1-4 1024x1024", conv(2, 1), [1, 1024, 1024, 1], [4, 1, 3, 3]),
        ("up 2x2 256-64 64x64", up.clone(), [1, 64, 64, 256], [256, 64, 2, 2]),
        ("up 2x2 64-32 128x128", up, [1, 128, 128, 64], [64, 32, 2, 2]),
        ("depthwise 7x7 256 64x64", by_channel(256, 3), [1, 64, 64, 256], [256, 1, 7, 7]),
        ("depthwise 3x3 128 128x128", by_channel(128, 1), [1, 128, 128, 128], [128, 1, 3, 3]),
    ];
    for (name, op, image, weight) in cases {
        if !name.contains(&machine.wanted) {
            continue;
        }
        let shapes = [image.to_vec(), weight.to_vec()];
        let (times, flops) = measured(&machine.cpu, &op, &shapes);
        let rate = |seconds: f64| flops / seconds / 1e9;
        let plain = plain_product(machine, &op, image, weight)
            .map_or(String::new(), |plain| format!("{:.1} %", 100.0 * plain / times[0]));
        println!(
            "{name:>26} {:>8.1} {:>16} {:>5.1} % {plain:>9}",
            rate(times[1]),
            format!("{:.1} .. {:.1}", rate(times[2]), rate(times[0])),
            100.0 * rate(times[1]) / ceiling,
        );
    }
}

/// Ops that mostly move memory.
fn moves(machine: &Machine, copy: f64) {
    use ResizeMode::{Bicubic, Bilinear, Nearest};
    let resize = |mode, size| -> Op { Resize { mode, antialias: false, size }.into() };
    let shrink = |mode, size| -> Op { Resize { mode, antialias: true, size }.into() };
    let halve: Op = MaxPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] }.into();
    let roi =
        RoiAlign { output: [7, 7], spatial_scale: 1.0, sampling_ratio: 0, aligned: true }.into();
    println!("{:>26} {:>8} {:>16} {:>7} {:>9}", "op", "GB/s", "10 % .. 90 %", "share", "ms");
    let cases: [(&str, Op, Vec<Vec<usize>>); 11] = [
        ("64 masks 256-1024", resize(Bilinear, [1024; 2]), vec![vec![64, 256, 256, 1]]),
        ("3 masks 256-1024", resize(Bilinear, [1024; 2]), vec![vec![3, 256, 256, 1]]),
        ("3 masks 256-1500x2250", resize(Bilinear, [1500, 2250]), vec![vec![3, 256, 256, 1]]),
        ("1 mask 256-4096", resize(Bilinear, [4096; 2]), vec![vec![1, 256, 256, 1]]),
        ("bicubic 256-1024", resize(Bicubic, [1024; 2]), vec![vec![4, 256, 256, 1]]),
        ("nearest 32-64 256", resize(Nearest, [64; 2]), vec![vec![1, 32, 32, 256]]),
        ("bilinear 64-128 256", resize(Bilinear, [128; 2]), vec![vec![1, 64, 64, 256]]),
        ("antialias 1024-256", shrink(Bilinear, [256; 2]), vec![vec![4, 1024, 1024, 1]]),
        ("max pool 2 256x256 96", halve, vec![vec![1, 256, 256, 96]]),
        (
            "grid sample 64x64 256",
            cutout_graph::ops::GridSample.into(),
            vec![vec![1, 64, 64, 256], vec![1, 64, 64, 2]],
        ),
        ("RoI align 200 256", roi, vec![vec![1, 72, 72, 256], vec![200, 5]]),
    ];
    for (name, op, shapes) in cases {
        if !name.contains(&machine.wanted) {
            continue;
        }
        let (times, _) = measured(&machine.cpu, &op, &shapes);
        let bytes = bytes(&op, &shapes);
        let rate = |seconds: f64| bytes / seconds / 1e9;
        println!(
            "{name:>26} {:>8.1} {:>16} {:>5.1} % {:>9.3}",
            rate(times[1]),
            format!("{:.1} .. {:.1}", rate(times[2]), rate(times[0])),
            100.0 * rate(times[1]) / copy,
            1e3 * times[1],
        );
    }
}

/// Bytes of inputs and output together.
fn bytes(op: &Op, shapes: &[Vec<usize>]) -> f64 {
    let types: Vec<_> =
        shapes.iter().map(|shape| cutout_tensor::TensorType::f32(shape.clone())).collect();
    let types: Vec<_> = types.iter().collect();
    let output = op.infer(&types).expect("the shapes fit");
    (types.iter().map(|ty| ty.bytes()).sum::<usize>() + output.bytes()) as f64
}

/// Seconds that the step of `op` takes, at 10 %, 50 % and 90 % of the runs, and its operations. Weights of convolutions
/// are parameters.
fn measured(cpu: &Cpu, op: &Op, shapes: &[Vec<usize>]) -> ([f64; 3], f64) {
    let is_convolution = matches!(op, Op::Conv2d(_) | Op::ConvTranspose2d(_));
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, shapes[0].clone());
    let mut others = Vec::new();
    let mut tensors = HashMap::from([("x".to_owned(), tensor(1, &shapes[0]))]);
    if let Some(shape) = shapes.get(1) {
        let other = match is_convolution {
            true => builder.weights().parameter("weight", shape.clone()),
            false => builder.input("weight", DType::F32, shape.clone()),
        };
        others.push(other);
        let values = if shape[1] == 5 { boxes(shape[0]) } else { tensor(2, shape) };
        tensors.insert("weight".to_owned(), values);
    }
    builder.output("y", x.apply(op.clone(), &others));
    let graph = builder.finish().expect("the op fits its inputs");
    let weights = Weights::new(tensors.clone());
    let program = cpu.compile_program(&graph, &weights, &Profile::default()).expect("it compiles");
    let inputs: Vec<(&str, &Tensor)> =
        graph.inputs().map(|(name, _)| (name, &tensors[name])).collect();
    let times = quantiles(|| {
        let (_, steps) = program.run_timed(&inputs).expect("it runs");
        steps.iter().map(|step| step.time.as_secs_f64()).sum()
    });
    let types: Vec<_> =
        shapes.iter().map(|shape| cutout_tensor::TensorType::f32(shape.clone())).collect();
    let types: Vec<_> = types.iter().collect();
    let output = op.infer(&types).expect("the shapes fit");
    (times, op.cost(&types, &output).flops as f64)
}

/// Seconds, in the fastest tenth of the runs, of the product of the same rows, depth and columns, where the op is one.
fn plain_product(machine: &Machine, op: &Op, image: [usize; 4], weight: [usize; 4]) -> Option<f64> {
    let transposed = matches!(op, Op::ConvTranspose2d(_));
    if !transposed && weight[1] != image[3] {
        return None;
    }
    let shapes = [image, weight].map(cutout_tensor::TensorType::f32);
    let output = op.infer(&[&shapes[0], &shapes[1]]).ok()?;
    let (rows, depth, columns) = if transposed {
        (image[0] * image[1] * image[2], image[3], weight[1] * weight[2] * weight[3])
    } else {
        (output.shape.rows(), weight[1] * weight[2] * weight[3], weight[0])
    };
    let left = noise(1, rows * depth);
    let data = noise(2, columns * depth);
    let view = WeightView::output_major(WeightData::F32(&data), columns, depth);
    let weights = PackedWeights::pack(machine.cpu.isa(), &view);
    let mut output = AlignedBuffer::zeroed(rows * columns);
    let left = RowMajor::new(&left, rows, depth, depth);
    let times = quantiles(|| {
        let begun = Instant::now();
        let target = Output::new(&mut output, columns);
        gemm(&machine.pool, &left, &weights, &Epilogue::NONE, target);
        begun.elapsed().as_secs_f64()
    });
    Some(times[0])
}

/// 10 %, 50 % and 90 % of the seconds that `body` returns.
fn quantiles(mut body: impl FnMut() -> f64) -> [f64; 3] {
    body();
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 7 || (started.elapsed().as_secs_f64() < 0.7 && times.len() < 1000) {
        times.push(body());
    }
    times.sort_by(f64::total_cmp);
    [1, 5, 9].map(|tenth| times[(times.len() - 1) * tenth / 10])
}

fn tensor(seed: u64, shape: &[usize]) -> Tensor {
    let values = noise(seed, shape.iter().product()).to_vec();
    Tensor::from_vec(shape.to_vec(), values).expect("as many values as the shape has")
}

/// Boxes of about a third of a 72 by 72 map.
fn boxes(count: usize) -> Tensor {
    let corners = noise(7, 2 * count);
    let rows = corners.chunks_exact(2).flat_map(|corner| {
        let [x, y] = [18.0 + 17.0 * corner[0], 18.0 + 17.0 * corner[1]];
        [0.0, x, y, x + 24.0, y + 24.0]
    });
    Tensor::from_vec([count, 5], rows.collect::<Vec<f32>>()).expect("five values a box")
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
