//! Products and attention at the sizes of the models.
//!
//! A kernel is timed as a chain of [`CHAIN`] of its kind in one program, each with weights of its own, so that the time of one is not that of a launch.

use cutout_graph::ops::{Attention, AttentionInputs};
use cutout_graph::{Builder, Graph, Precision, Profile, Value};
use cutout_tensor::DType;
use serde_json::json;

use crate::Options;
use crate::work::{Row, Timer};

/// Kernels of a chain.
const CHAIN: usize = 12;

/// Blocks of the models: name, tokens, width, hidden width.
const BLOCKS: [(&str, usize, usize, usize); 6] = [
    ("SAM 1 B", 4096, 768, 3072),
    ("SAM 1 L", 4096, 1024, 4096),
    ("SAM 1 H", 4096, 1280, 5120),
    ("SAM 2 L, stage 3", 4096, 576, 2304),
    ("SAM 2 T, stage 4", 1024, 768, 3072),
    ("SAM 3", 5184, 1024, 4736),
];

/// Attention over whole pictures: name, heads, tokens, width of a head.
const ATTENTIONS: [(&str, usize, usize, usize); 5] = [
    ("SAM 1 H without bias", 16, 4096, 80),
    ("SAM 2 T", 4, 4096, 96),
    ("SAM 2 L", 8, 4096, 72),
    ("SAM 3", 16, 5184, 64),
    ("SAM 3 fusion", 8, 5184, 32),
];

/// One linear layer of a chain.
fn layer<'g>(builder: &'g Builder, x: Value<'g>, name: &str, outputs: usize) -> Value<'g> {
    let depth = x.shape().last_axis();
    let weights = builder.weights();
    let weight = weights.parameter(&format!("{name}.weight"), [outputs, depth]);
    x.linear(weight) + weights.parameter(&format!("{name}.bias"), [outputs])
}

/// Products of a transformer block.
#[derive(Clone, Copy)]
enum Kind {
    Wide,
    Added,
    Perceptron,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Wide, Kind::Added, Kind::Perceptron];

    fn name(self) -> &'static str {
        match self {
            Kind::Wide => "qkv",
            Kind::Added => "projection + residual",
            Kind::Perceptron => "MLP with GELU + residual",
        }
    }

    /// One of the chain, from `[tokens, width]` to the same.
    fn apply<'g>(
        self,
        builder: &'g Builder,
        x: Value<'g>,
        index: usize,
        hidden: usize,
    ) -> Value<'g> {
        let width = x.shape().last_axis();
        match self {
            Kind::Wide => layer(builder, x, &format!("qkv.{index}"), 3 * width).slice(1, 0..width),
            Kind::Added => x + layer(builder, x, &format!("proj.{index}"), width),
            Kind::Perceptron => {
                let inner = layer(builder, x, &format!("fc1.{index}"), hidden).gelu();
                x + layer(builder, inner, &format!("fc2.{index}"), width)
            }
        }
    }
}

fn products(kind: Kind, tokens: usize, width: usize, hidden: usize) -> Graph {
    let builder = Builder::new();
    let mut x = builder.input("x", DType::F32, [tokens, width]);
    for index in 0..CHAIN {
        x = kind.apply(&builder, x, index, hidden);
    }
    builder.output("y", x);
    builder.finish().unwrap()
}

fn attention(heads: usize, tokens: usize, width: usize) -> Graph {
    let builder = Builder::new();
    let mut x = builder.input("x", DType::F32, [1, tokens, heads * width]);
    for _ in 0..CHAIN {
        let op = Attention::new(heads, (width as f32).powf(-0.5));
        x = AttentionInputs::new(x, x, x).attend(op);
    }
    builder.output("y", x);
    builder.finish().unwrap()
}

/// The times of all kernels.
pub(crate) fn rows(timer: &Timer<'_>, options: &Options) -> Vec<Row> {
    let half = Profile { precision: Precision::F16, ..timer.profile.clone() };
    let mut rows = Vec::new();
    let mut add = |name: String, graph: &dyn Fn() -> Graph, described: serde_json::Value| {
        if options.wants(&name) {
            let ready = timer.ready(&graph(), &half);
            let times = timer.time(&[(&ready, 1)]).map(|time| time / CHAIN as f64);
            rows.push(Row::new(&name, times, described));
        }
    };
    for (model, tokens, width, hidden) in BLOCKS {
        for kind in Kind::ALL {
            let described = json!({
                "kind": kind.name(), "tokens": tokens, "width": width, "hidden": hidden, "chain": CHAIN,
            });
            let graph = || products(kind, tokens, width, hidden);
            add(format!("kernel: {model} {}", kind.name()), &graph, described);
        }
    }
    for (model, heads, tokens, width) in ATTENTIONS {
        let described = json!({
            "kind": "attention", "heads": heads, "tokens": tokens, "width": width, "chain": CHAIN,
        });
        add(
            format!("kernel: attention of {model}"),
            &|| attention(heads, tokens, width),
            described,
        );
    }
    rows
}
