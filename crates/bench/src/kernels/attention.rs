//! Attention of the models: global, over the memories of several frames, and in windows.

use anyhow::Result;
use cutout_graph::ops::{Attention, AttentionInputs, BiasForm, SeparableBias, Windows};

use crate::goal::Goal;
use crate::kernels::compiled::{Model, ModelBuilder, Scenario};
use crate::outcome::Unit;

/// Tokens of a SAM 1 image: 64 by 64.
const SIDE: usize = 64;
const TOKENS: usize = SIDE * SIDE;
/// Width and height of its windows; the last ones reach 6 positions beyond the image.
const WINDOW: usize = 14;
/// Heads and their width in a ViT-B.
const HEADS: usize = 12;
const WIDTH: usize = 64;
/// Keys of seven frames' memories and 16 object pointers of four tokens each.
const MEMORY_KEYS: usize = 28736;
const MEMORY_WIDTH: usize = 256;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = Scenario {
        kernel: "attention",
        shape: "12 heads x 4096 x 64".to_owned(),
        unit: Unit::Gflops,
        goal: Goal::Share(0.6),
        axis: 1,
        whole: TOKENS,
        excerpt: 32,
        build: global,
    };
    let memory = Scenario {
        shape: "1 head x 4096 x 28736 x 256".to_owned(),
        build: memory,
        ..scenario.clone()
    };
    let windowed = Scenario {
        shape: "12 heads, 14x14 of 64x64, bias".to_owned(),
        goal: Goal::None,
        excerpt: TOKENS,
        build: windowed,
        ..scenario.clone()
    };
    vec![scenario, memory, windowed]
}

fn global(queries: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let channels = HEADS * WIDTH;
    let query = model.input("query", [1, queries, channels])?;
    let key = model.input("key", [1, TOKENS, channels])?;
    let value = model.input("value", [1, TOKENS, channels])?;
    model.graph.output("y", query.attention(key, value, Attention::new(HEADS, 0.125)));
    model.finish()
}

fn memory(queries: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let query = model.input("query", [1, queries, MEMORY_WIDTH])?;
    let key = model.input("key", [1, MEMORY_KEYS, MEMORY_WIDTH])?;
    let value = model.input("value", [1, MEMORY_KEYS, MEMORY_WIDTH])?;
    model.graph.output("y", query.attention(key, value, Attention::new(1, 0.0625)));
    model.finish()
}

/// The whole output is compared: a prefix of the rows would cut through windows.
fn windowed(_: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let channels = HEADS * WIDTH;
    let windows = Windows {
        query_grid: [SIDE; 2],
        key_grid: [SIDE; 2],
        query_window: [WINDOW; 2],
        key_window: [WINDOW; 2],
    };
    let bias = SeparableBias { form: BiasForm::Relative, grid: [WINDOW; 2] };
    let op = Attention { windows: Some(windows), bias: Some(bias), ..Attention::new(HEADS, 0.125) };
    let tokens = |name: &str| model.input(name, [1, TOKENS, channels]);
    let inputs = AttentionInputs::new(tokens("query")?, tokens("key")?, tokens("value")?);
    let reach = 2 * WINDOW - 1;
    let rows = model.input("rows", [1, TOKENS, HEADS, reach])?;
    let columns = model.input("columns", [1, TOKENS, HEADS, reach])?;
    let padding = [model.weight("key_bias", [channels])?, model.weight("value_bias", [channels])?];
    let inputs = AttentionInputs { bias: Some([rows, columns]), padding: Some(padding), ..inputs };
    model.graph.output("y", inputs.attend(op));
    model.finish()
}
