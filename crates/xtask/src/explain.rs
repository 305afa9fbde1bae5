//! `cargo xtask explain`: how an example graph is compiled.

use anyhow::{Result, anyhow};
use cutout_cpu::Cpu;
use cutout_graph::explain::{Question, explain};
use cutout_graph::ops::{Attention, AttentionInputs};
use cutout_graph::passes::Context;
use cutout_graph::{Backend, Builder, Graph, Profile, Scope, Value};
use cutout_tensor::DType;

/// The graphs that can be explained.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Example {
    /// A transformer block on 64×64 tokens of 768 channels, as in ViT-B.
    VitBlock,
    /// Two linear layers with a GELU between them.
    Mlp,
}

/// Prints the explanation of an example.
pub(crate) fn run(
    example: Example,
    after: Option<&str>,
    profile: Option<&std::path::Path>,
) -> Result<()> {
    let profile = match profile {
        None => Profile::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| anyhow!("{}: {error}", path.display()))?;
            Profile::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?
        }
    };
    let graph = build(example)?;
    let cpu = Cpu::new(1);
    let rules = cpu.rules(&profile);
    let question = Question { graph: &graph, rules: &*rules, passes: cpu.passes(), after };
    print!("{}", explain(&question, &Context::new(None, &profile))?);
    Ok(())
}

fn build(example: Example) -> Result<Graph> {
    let builder = Builder::new();
    let weights = builder.weights();
    match example {
        Example::VitBlock => {
            let x = builder.input("tokens", DType::F32, [1, 4096, 768]);
            builder.output("tokens", block(x, &weights.at("blocks").at(0)));
        }
        Example::Mlp => {
            let x = builder.input("tokens", DType::F32, [9, 6]);
            builder.output("tokens", mlp(x, &weights.at("mlp"), 24));
        }
    }
    Ok(builder.finish()?)
}

/// Pre-norm transformer block: attention, then MLP, each added to its input.
fn block<'g>(x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let x = x + attention(layer_norm(x, &w.at("norm1")), &w.at("attn"));
    x + mlp(layer_norm(x, &w.at("norm2")), &w.at("mlp"), 4 * x.shape().last_axis())
}

/// Multi-head self-attention over `x: [batch, tokens, channels]`, heads of 64.
fn attention<'g>(x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let width = x.shape().last_axis();
    let [query, key, value] = linear(x, &w.at("qkv"), 3 * width).split(2);
    let mixed = AttentionInputs::new(query, key, value).attend(Attention::new(width / 64, 0.125));
    linear(mixed, &w.at("proj"), width)
}

fn mlp<'g>(x: Value<'g>, w: &Scope<'g>, hidden: usize) -> Value<'g> {
    let width = x.shape().last_axis();
    linear(linear(x, &w.at("lin1"), hidden).gelu(), &w.at("lin2"), width)
}

fn linear<'g>(x: Value<'g>, w: &Scope<'g>, outputs: usize) -> Value<'g> {
    let inputs = x.shape().last_axis();
    x.linear(w.parameter("weight", [outputs, inputs])) + w.parameter("bias", [outputs])
}

fn layer_norm<'g>(x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let width = x.shape().last_axis();
    x.layer_norm(w.parameter("weight", [width]), w.parameter("bias", [width]), 1e-6)
}
