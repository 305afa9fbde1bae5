//! Attention on the shapes of the models, as a share of the multiply-add ceiling of the same run.
//!
//! `cargo run --release -p cutout-cpu --example attention_bench -- [threads] [avx512|avx2|portable] [part of a name]`
//!
//! Operations are counted as 4 per query, key and channel; keys that pad a window count.
#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::time::Instant;

use cutout_cpu::{Cpu, CpuProgram, Isa, ceiling};
use cutout_graph::ops::{
    Attention, AttentionInputs, AttentionRope, BiasForm, SeparableBias, Windows,
};
use cutout_graph::{Builder, Graph, Profile, Value, Weights};
use cutout_tensor::{DType, Shape, Tensor};

/// A model's attention.
struct Model {
    name: &'static str,
    batch: usize,
    queries: usize,
    keys: usize,
    /// Channels of one head.
    width: usize,
    op: Attention,
    /// Rows of the tables of queries and keys, where they are rotated.
    positions: [usize; 2],
}

const GRID: [usize; 2] = [64, 64];

fn shapes() -> Vec<Model> {
    let plain = |name, heads: usize, [batch, queries, keys, width]: [usize; 4]| Model {
        name,
        batch,
        queries,
        keys,
        width,
        op: Attention::new(heads, 1.0 / (width as f32).sqrt()),
        positions: [0; 2],
    };
    let relative = |grid| Some(SeparableBias { form: BiasForm::Relative, grid });
    let windows = |window, grid| {
        Some(Windows { query_grid: grid, key_grid: grid, query_window: window, key_window: window })
    };
    let global = |name| plain(name, 12, [1, 4096, 4096, 64]);
    let with = |shape: Model, change: fn(&mut Attention)| {
        let mut shape = shape;
        change(&mut shape.op);
        shape
    };
    let mut all = vec![
        global("global"),
        global("global, relative bias"),
        global("windows 14, relative bias, padding"),
        global("windows 16"),
        plain("hiera windows 8, width 96", 1, [1, 65536, 65536, 96]),
        plain("memory", 1, [1, 4096, 28736, 256]),
        plain("memory, rotated, tail", 1, [1, 4096, 28736, 256]),
        plain("global, 16 heads", 16, [1, 4096, 4096, 64]),
        plain("memory, one frame", 1, [1, 4096, 4096, 256]),
        with(plain("causal text", 16, [1, 77, 77, 64]), |op| op.causal = true),
        plain("tokens to image", 8, [1, 7, 4096, 16]),
        plain("image to tokens", 8, [1, 4096, 7, 16]),
        plain("tokens to tokens", 8, [1, 7, 7, 32]),
        plain("tokens to image, 64 prompts", 8, [64, 7, 4096, 16]),
        plain("image to tokens, 64 prompts", 8, [64, 4096, 7, 16]),
    ];
    all[1].op.bias = relative(GRID);
    all[2].op.bias = relative([14, 14]);
    all[2].op.windows = windows([14, 14], GRID);
    all[3].op.windows = windows([16, 16], GRID);
    all[4].op.windows = windows([8, 8], [256, 256]);
    all[6].op.rope = Some(AttentionRope { key_tail: 64 });
    all[6].positions = [4096, 4096];
    all
}

impl Model {
    /// 4 per query, key it meets, and channel.
    fn operations(&self) -> f64 {
        let met = self
            .op
            .windows
            .map_or(self.keys, |windows| windows.key_window[0] * windows.key_window[1]);
        4.0 * (self.batch * self.queries * self.op.heads * self.width) as f64 * met as f64
    }

    /// Queries, keys and values as slices of one tensor where there are as many of each.
    fn tokens<'g>(&self, builder: &'g Builder) -> [Value<'g>; 3] {
        let channels = self.op.heads * self.width;
        let input = |name, tokens, channels| {
            builder.input(name, DType::F32, [self.batch, tokens, channels])
        };
        if self.queries == self.keys {
            // Negated, so that the attention reads what a step of the program computed, in the arena.
            let fused = -input("qkv", self.queries, 3 * channels);
            return [0, 1, 2].map(|part| fused.slice(2, part * channels..(part + 1) * channels));
        }
        [("q", self.queries), ("k", self.keys), ("v", self.keys)]
            .map(|(name, tokens)| -input(name, tokens, channels))
    }

    fn compile(&self, cpu: &Cpu) -> (Graph, CpuProgram) {
        let builder = Builder::new();
        let [query, key, value] = self.tokens(&builder);
        let mut inputs = AttentionInputs::new(query, key, value);
        let channels = self.op.heads * self.width;
        let input = |name, shape: Vec<usize>| builder.input(name, DType::F32, shape);
        inputs.bias = self.op.bias.map(|bias| {
            let line =
                |length: usize| vec![self.batch, self.queries, self.op.heads, 2 * length - 1];
            [input("rows", line(bias.grid[0])), input("columns", line(bias.grid[1]))]
        });
        inputs.rope = self.op.rope.map(|_| {
            let [query, key] = self.positions.map(|positions| vec![positions, self.width / 2]);
            [
                input("query cos", query.clone()),
                input("query sin", query),
                input("key cos", key.clone()),
                input("key sin", key),
            ]
        });
        inputs.padding = self.op.has_padding().then(|| {
            [input("padding key", vec![channels]), input("padding value", vec![channels])]
        });
        builder.output("y", inputs.attend(self.op));
        let graph = builder.finish().expect("the shapes fit the op");
        let program = cpu
            .compile_program(&graph, &Weights::default(), &Profile::default())
            .expect("the graph compiles");
        (graph, program)
    }

    /// Sorted times of the attention alone, in seconds.
    fn seconds(&self, cpu: &Cpu) -> Vec<f64> {
        let (graph, program) = self.compile(cpu);
        let tensors: Vec<Tensor> = graph
            .inputs()
            .enumerate()
            .map(|(seed, (_, id))| noise(seed as u64, &graph.ty(id).shape))
            .collect();
        let inputs: Vec<(&str, &Tensor)> =
            graph.inputs().map(|(name, _)| name).zip(&tensors).collect();
        let started = Instant::now();
        let mut times = Vec::new();
        while times.len() < 5 || (started.elapsed().as_secs_f64() < 1.0 && times.len() < 2000) {
            let (_, steps) = program.run_timed(&inputs).expect("the program runs");
            let attention = steps.iter().filter(|step| step.op == "attention");
            times.push(attention.map(|step| step.time.as_secs_f64()).sum());
        }
        times.sort_by(f64::total_cmp);
        times
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let threads = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let isa = match arguments.get(2).map(String::as_str) {
        Some("avx2") => Isa::Avx2,
        Some("portable") => Isa::Portable,
        Some(_) | None => Isa::detect(),
    };
    let wanted = arguments.get(3).map_or("", String::as_str);
    let cpu = Cpu::with_isa(isa, threads);
    println!("{isa:?}, {threads} threads");
    println!(
        "{:>36} {:>10} {:>8} {:>7} {:>17} {:>8}",
        "shape", "ms", "GFLOP/s", "share", "tenth to ninth", "ceiling"
    );
    for shape in shapes().iter().filter(|shape| shape.name.contains(wanted)) {
        let before = ceiling::fma_gflops(isa, threads);
        let times = shape.seconds(&cpu);
        let ceiling = before.max(ceiling::fma_gflops(isa, threads));
        let at = |tenths: usize| times[(times.len() - 1) * tenths / 10];
        let gflops = |seconds: f64| shape.operations() / seconds / 1e9;
        println!(
            "{:>36} {:>10.3} {:>8.1} {:>5.1} % {:>8.1}-{:>8.1} {:>8.1}",
            shape.name,
            at(5) * 1e3,
            gflops(at(5)),
            100.0 * gflops(at(5)) / ceiling,
            gflops(at(9)),
            gflops(at(1)),
            ceiling
        );
    }
}

fn noise(seed: u64, shape: &Shape) -> Tensor {
    let mut state = seed + 1;
    let count = shape.iter().product();
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        values.push((state >> 40) as f32 / (1 << 23) as f32 - 1.0);
    }
    Tensor::from_vec(shape.clone(), values).expect("as many values as the shape has")
}
