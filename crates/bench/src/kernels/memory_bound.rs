//! Memory-bound kernels: each byte is read once and written once.

use anyhow::Result;

use crate::goal::Goal;
use crate::kernels::compiled::{Model, ModelBuilder, Scenario};
use crate::outcome::Unit;

const ROWS: usize = 4096;
const COLUMNS: usize = 3072;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |kernel, build| Scenario {
        kernel,
        shape: format!("{ROWS}x{COLUMNS}"),
        unit: Unit::Gbps,
        goal: Goal::Share(0.6),
        axis: 0,
        whole: ROWS,
        excerpt: 64,
        build,
    };
    vec![scenario("layer_norm", layer_norm), scenario("softmax", softmax), scenario("gelu", gelu)]
}

fn layer_norm(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let (weight, bias) = (model.weight("weight", [COLUMNS])?, model.weight("bias", [COLUMNS])?);
    let x = model.input("x", [rows, COLUMNS])?;
    model.graph.output("y", x.layer_norm(weight, bias, 1e-6));
    model.finish()
}

fn softmax(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    model.graph.output("y", model.input("x", [rows, COLUMNS])?.softmax());
    model.finish()
}

fn gelu(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    model.graph.output("y", model.input("x", [rows, COLUMNS])?.gelu());
    model.finish()
}
