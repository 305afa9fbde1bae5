//! Memory-bound kernels: each byte is read once and written once.

use anyhow::Result;

use crate::goal::Goal;
use crate::kernels::compiled::{Model, ModelBuilder, Scenario};
use crate::outcome::Unit;

const ROWS: usize = 4096;
const COLUMNS: usize = 3072;
/// Rows that are compared with the definition.
const EXCERPT: usize = 64;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |kernel, build| Scenario {
        kernel,
        shape: format!("{ROWS}x{COLUMNS}"),
        unit: Unit::Gbps,
        goal: Goal::Share(0.6),
        axis: 0,
        whole: ROWS,
        excerpt: EXCERPT,
        build,
    };
    vec![scenario("layer_norm", layer_norm), scenario("softmax", softmax), scenario("gelu", gelu)]
}

fn layer_norm(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let (weight, bias) = (model.weight("weight", [COLUMNS])?, model.weight("bias", [COLUMNS])?);
    let x = model.input("x", [rows, COLUMNS])?;
    model.output_rows(x.layer_norm(weight, bias, 1e-6), EXCERPT);
    model.finish()
}

fn softmax(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    model.output_rows(model.input("x", [rows, COLUMNS])?.softmax(), EXCERPT);
    model.finish()
}

fn gelu(rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    model.output_rows(model.input("x", [rows, COLUMNS])?.gelu(), EXCERPT);
    model.finish()
}
