//! Time to compile a program when all weights are already packed: the cost of a prompt of a new shape.

use anyhow::{Result, ensure};
use cutout_graph::ops::{Attention, ConvTranspose2d};
use cutout_graph::{Backend, Kind, Profile, Value};

use crate::bench::Bench;
use crate::contest::{Contest, seconds};
use crate::goal::Goal;
use crate::kernels::Task;
use crate::kernels::compiled::{Model, ModelBuilder};
use crate::outcome::{Outcome, Role, Unit};

const KERNEL: &str = "compile";
const LAYERS: usize = 6;
/// Tokens of the prompt, positions of the image, and their channels, as in the mask decoders.
const PROMPT: usize = 7;
const POSITIONS: usize = 4096;
const CHANNELS: usize = 256;

pub(crate) fn task() -> Task {
    Task { kernel: KERNEL, shape: "decoder-sized graph".to_owned(), run: Box::new(measure) }
}

fn measure(bench: &Bench) -> Result<Outcome> {
    let model = decoder()?;
    let ops = model.graph.iter().filter(|(_, node)| matches!(node.kind, Kind::Op(_))).count();
    ensure!((280..=330).contains(&ops), "about 300 ops were meant, the graph has {ops}");
    let contest = Contest {
        kernel: KERNEL,
        shape: format!("decoder-sized graph, {ops} ops"),
        unit: Unit::Milliseconds,
        work: 0.0,
        goal: Goal::Milliseconds(5.0),
    };
    let profile = Profile::default();
    let compile = || bench.cpu.compile(&model.graph, &model.weights, &profile);
    // Packs the weights.
    compile()?;
    let call = || {
        let mut result = Ok(());
        let time = seconds(|| result = compile().map(drop));
        result?;
        Ok(time)
    };
    let contestants = vec![contest.timed("cutout", Role::Ours, 0.0, call)];
    contest.run(contestants, &bench.budget, &bench.progress)
}

/// A two-way transformer like the mask decoders', with as many layers as make about 300 ops.
fn decoder() -> Result<Model> {
    let model = ModelBuilder::default();
    let mut tokens = model.input("tokens", [1, PROMPT, CHANNELS])?;
    let mut image = model.input("image", [1, POSITIONS, CHANNELS])?;
    let position = model.input("position", [1, POSITIONS, CHANNELS])?;
    let point = tokens;
    for layer in 0..LAYERS {
        let part = |name: &str| format!("layers.{layer}.{name}");
        let query = tokens + point;
        let attended = attention(&model, &part("self_attention"), [query, query, tokens])?;
        tokens = norm(&model, &part("norm1"), tokens + attended)?;
        let (query, key) = (tokens + point, image + position);
        let attended = attention(&model, &part("to_image"), [query, key, image])?;
        tokens = norm(&model, &part("norm2"), tokens + attended)?;
        let hidden = linear(&model, &part("mlp.0"), tokens, 2048)?.relu();
        let mixed = linear(&model, &part("mlp.1"), hidden, CHANNELS)?;
        tokens = norm(&model, &part("norm3"), tokens + mixed)?;
        let (query, key) = (image + position, tokens + point);
        let attended = attention(&model, &part("to_tokens"), [query, key, tokens])?;
        image = norm(&model, &part("norm4"), image + attended)?;
    }
    let weight = model.weight("upscale.weight", [CHANNELS, 64, 2, 2])?;
    let upscaled = image
        .reshape([1, 64, 64, CHANNELS])
        .conv_transpose2d(weight, ConvTranspose2d::new(2, 0))
        .gelu()
        .reshape([1, 4 * POSITIONS, 64]);
    let mut heads = tokens.slice(1, 0..4);
    for depth in 0..3 {
        heads = linear(&model, &format!("heads.{depth}"), heads, CHANNELS)?.relu();
    }
    let heads = linear(&model, "heads.3", heads, 64)?;
    model.graph.output("masks", heads.matmul_transposed(upscaled));
    model.finish()
}

fn linear<'g>(
    model: &'g ModelBuilder,
    path: &str,
    x: Value<'g>,
    outputs: usize,
) -> Result<Value<'g>> {
    let weight = model.weight(&format!("{path}.weight"), [outputs, x.shape().last_axis()])?;
    let bias = model.weight(&format!("{path}.bias"), [outputs])?;
    Ok(x.linear(weight) + bias)
}

fn norm<'g>(model: &'g ModelBuilder, path: &str, x: Value<'g>) -> Result<Value<'g>> {
    let weight = model.weight(&format!("{path}.weight"), [CHANNELS])?;
    let bias = model.weight(&format!("{path}.bias"), [CHANNELS])?;
    Ok(x.layer_norm(weight, bias, 1e-5))
}

/// Attention of a query to a key and a value, each through its own linear layer.
fn attention<'g>(
    model: &'g ModelBuilder,
    path: &str,
    [query, key, value]: [Value<'g>; 3],
) -> Result<Value<'g>> {
    let inner = CHANNELS / 2;
    let query = linear(model, &format!("{path}.q_proj"), query, inner)?;
    let key = linear(model, &format!("{path}.k_proj"), key, inner)?;
    let value = linear(model, &format!("{path}.v_proj"), value, inner)?;
    let mixed = query.attention(key, value, Attention::new(8, 0.25));
    linear(model, &format!("{path}.out_proj"), mixed, CHANNELS)
}
