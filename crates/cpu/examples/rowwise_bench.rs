//! Speed of the kernels that are bound by memory, as a share of what a plain parallel copy reaches in the same run.
//!
//! `cargo run --release -p cutout-cpu --example rowwise_bench [threads] [name]`
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Mutex;
use std::time::Instant;

use cutout_cpu::memory::AlignedBuffer;
use cutout_cpu::pool::Pool;
use cutout_cpu::{Cpu, CpuProgram};
use cutout_graph::cases::{CaseInput, bools, integers, noise};
use cutout_graph::ops::{CompareKind, GroupNorm};
use cutout_graph::{Builder, Profile, Reduced, Value, Weights};
use cutout_tensor::{DType, Tensor, TensorError};

const ROWS: usize = 4096;
const WIDTH: usize = 3072;
const REPEATS: usize = 21;

/// One kernel: its inputs and how its graph is built from them. The last step is what is measured.
struct Bench {
    name: &'static str,
    inputs: Vec<CaseInput>,
    build: Build,
}

type Build = for<'g> fn(&[Value<'g>]) -> Value<'g>;

fn bench(name: &'static str, inputs: impl IntoIterator<Item = CaseInput>, build: Build) -> Bench {
    Bench { name, inputs: inputs.into_iter().collect(), build }
}

impl Bench {
    /// The program, and the bytes that its last step reads and writes.
    fn compile(&self, cpu: &Cpu) -> Result<(CpuProgram, usize), Box<dyn Error>> {
        let builder = Builder::new();
        let input = |(i, input): (usize, &CaseInput)| {
            builder.input(&format!("x{i}"), input.ty.dtype, input.ty.shape.clone())
        };
        let values: Vec<Value<'_>> = self.inputs.iter().enumerate().map(input).collect();
        let result = (self.build)(&values);
        let read: usize = self.inputs.iter().map(|input| input.ty.bytes()).sum();
        let bytes = read + result.ty().bytes();
        builder.output("y", result);
        let graph = builder.finish()?;
        let weights = Weights::new(HashMap::new());
        Ok((cpu.compile_program(&graph, &weights, &Profile::default())?, bytes))
    }

    /// Measures runs and copies in turn, so that both see the same disturbances.
    fn run(&self, cpu: &Cpu, copy: &mut Copy) -> Result<(), Box<dyn Error>> {
        let (program, bytes) = self.compile(cpu)?;
        let tensors: Vec<(String, Tensor)> = (0..self.inputs.len())
            .map(|i| Ok((format!("x{i}"), self.inputs[i].tensor(i as u64)?)))
            .collect::<Result<_, TensorError>>()?;
        let inputs: Vec<(&str, &Tensor)> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            copies.push(copy.measure());
            let (_, steps) = program.run_timed(&inputs)?;
            times.push(steps.last().ok_or("a program has steps")?.time.as_secs_f64());
        }
        let [low, median, high] = quartiles(&times);
        let bandwidth = bytes as f64 / median;
        let share = bandwidth / (copy.bytes() as f64 / quartiles(&copies)[1]);
        println!(
            "{:26} {:7.2} ms ({:.2} to {:.2})  {:6.1} GB/s  {:4.0} % of copy",
            self.name,
            median * 1e3,
            low * 1e3,
            high * 1e3,
            bandwidth / 1e9,
            100.0 * share
        );
        Ok(())
    }
}

/// A plain copy of the large input, each thread one share.
struct Copy {
    pool: Pool,
    source: AlignedBuffer<f32>,
    target: AlignedBuffer<f32>,
}

impl Copy {
    fn new(threads: usize) -> Self {
        let mut source = AlignedBuffer::zeroed(ROWS * WIDTH);
        source.fill(1.0);
        Copy { pool: Pool::new(threads), source, target: AlignedBuffer::zeroed(ROWS * WIDTH) }
    }

    fn bytes(&self) -> usize {
        2 * size_of::<f32>() * self.source.len()
    }

    /// Seconds of one copy.
    fn measure(&mut self) -> f64 {
        let share = self.source.len().div_ceil(self.pool.threads());
        let parts: Vec<_> = self.target.chunks_mut(share).map(Mutex::new).collect();
        let sources: Vec<&[f32]> = self.source.chunks(share).collect();
        let start = Instant::now();
        self.pool.run(parts.len(), &|task| {
            parts[task].lock().expect("no copy panics").copy_from_slice(sources[task]);
        });
        start.elapsed().as_secs_f64()
    }
}

/// Quartiles of the times, without the first run.
fn quartiles(times: &[f64]) -> [f64; 3] {
    let mut times = times[1..].to_vec();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 4], times[times.len() / 2], times[3 * times.len() / 4]]
}

fn large() -> CaseInput {
    noise([ROWS, WIDTH])
}

fn normalisations() -> Vec<Bench> {
    vec![
        bench("softmax", [large()], |x| x[0].softmax()),
        bench("softmax in place", [large()], |x| (-x[0]).softmax()),
        bench("softmax 64 wide", [noise([ROWS * 48, 64])], |x| x[0].softmax()),
        bench("layer norm", [large(), noise([WIDTH]), noise([WIDTH])], |x| {
            x[0].layer_norm(x[1], x[2], 1e-6)
        }),
        bench("layer norm in place", [large(), noise([WIDTH]), noise([WIDTH])], |x| {
            (-x[0]).layer_norm(x[1], x[2], 1e-6)
        }),
        bench("layer norm 768 wide", [noise([ROWS, 768]), noise([768]), noise([768])], |x| {
            x[0].layer_norm(x[1], x[2], 1e-6)
        }),
        bench(
            "layer norm channel first",
            [noise([1, 256, ROWS]), noise([256]), noise([256])],
            |x| x[0].apply(cutout_graph::ops::LayerNorm { axis: 1, epsilon: 1e-6 }, &x[1..]),
        ),
        bench("group norm", [noise([1, 4 * ROWS, 256]), noise([256]), noise([256])], |x| {
            x[0].group_norm(x[1], x[2], GroupNorm { groups: 32, epsilon: 1e-6 })
        }),
    ]
}

fn chains() -> Vec<Bench> {
    vec![
        bench("gelu", [large()], |x| x[0].gelu()),
        bench("gelu in place", [large()], |x| x[0].softmax().gelu()),
        bench("add", [large(), large()], |x| x[0] + x[1]),
        bench("add row, relu", [large(), noise([WIDTH])], |x| (x[0] + x[1]).relu()),
        bench("scale and shift", [large()], |x| x[0] * 0.5 + 1.0),
        bench("scalar input", [large(), noise([])], |x| x[0] * x[1]),
        bench("rows of 3", [noise([ROWS * 256, 3]), noise([3])], |x| x[0] * x[1]),
        bench("rows of 7", [noise([ROWS * 128, 7]), noise([7])], |x| x[0] * x[1]),
        bench("column over 3", [noise([ROWS * 256, 3]), noise([ROWS * 256, 1])], |x| x[0] * x[1]),
        bench("column over 7", [noise([ROWS * 128, 7]), noise([ROWS * 128, 1])], |x| x[0] * x[1]),
    ]
}

fn others() -> Vec<Bench> {
    vec![
        bench("rope", [noise([48, ROWS, 64]), noise([ROWS, 32]), noise([ROWS, 32])], |x| {
            x[0].rope(x[1], x[2])
        }),
        bench("sum of rows", [large()], |x| x[0].sum([1], Reduced::Drop)),
        bench("sum of columns", [large()], |x| x[0].sum([0], Reduced::Drop)),
        bench("sum of all", [large()], |x| x[0].sum([0, 1], Reduced::Drop)),
        bench("max of rows", [large()], |x| x[0].max([1], Reduced::Drop)),
        bench("arg max of rows", [large()], |x| x[0].arg_max(1)),
        bench("arg max of columns", [large()], |x| x[0].arg_max(0)),
        bench("cumulative sum, rows", [large()], |x| x[0].cumulative_sum(1)),
        bench("cumulative sum, columns", [large()], |x| x[0].cumulative_sum(0)),
        bench("gather", [large(), integers([ROWS], 0, ROWS as i64)], |x| x[0].gather(x[1])),
        bench("pad", [noise([1, 64, 64, 768])], |x| x[0].pad([0, 0, 0, 0], [0, 6, 6, 0], 0.0)),
        bench("to half", [large()], |x| x[0].cast(DType::F16)),
        bench("from half", [noise([ROWS, WIDTH]).of(DType::F16)], |x| x[0].cast(DType::F32)),
        bench("to bfloat16", [large()], |x| x[0].cast(DType::BF16)),
        bench("from bfloat16", [noise([ROWS, WIDTH]).of(DType::BF16)], |x| x[0].cast(DType::F32)),
        bench("from bytes", [integers([ROWS, WIDTH], 0, 256).of(DType::U8)], |x| {
            x[0].cast(DType::F32)
        }),
        bench("compare with scalar", [large(), noise([])], |x| {
            x[0].apply(cutout_graph::ops::Compare { kind: CompareKind::Greater }, &x[1..])
        }),
        bench("select", [bools([ROWS, WIDTH]), large(), noise([])], |x| x[0].select(x[1], x[2])),
        bench("and", [bools([ROWS, WIDTH]), bools([ROWS, WIDTH])], |x| {
            x[0].apply(
                cutout_graph::ops::Binary { kind: cutout_graph::ops::BinaryKind::And },
                &x[1..],
            )
        }),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let wanted = arguments.next().unwrap_or_default();
    let cpu = Cpu::new(threads);
    let mut copy = Copy::new(threads);
    let copies: Vec<f64> = (0..REPEATS).map(|_| copy.measure()).collect();
    let [low, median, high] = quartiles(&copies).map(|time| copy.bytes() as f64 / time / 1e9);
    println!(
        "{} on {threads} threads; copy {median:.1} GB/s ({high:.1} to {low:.1})",
        cpu.isa().name()
    );
    for bench in [normalisations(), chains(), others()].into_iter().flatten() {
        if bench.name.contains(&wanted) {
            bench.run(&cpu, &mut copy)?;
        }
    }
    Ok(())
}
