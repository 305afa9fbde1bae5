//! Matrix products in bytes, with quantisation of the rows and epilogue, compared with our product in single precision.

use std::cell::RefCell;

use anyhow::Result;
use cutout_graph::ops::{Epilogue, QuantizedLinear};
use cutout_parallel::AlignedBuffer;
use cutout_tensor::{QuantizedMatrix, Scales, Tensor};

use crate::bench::Bench;
use crate::contest::{Contest, seconds};
use crate::goal::Goal;
use crate::kernels::compiled::{Compiled, Model, ModelBuilder, excerpt_error, missing_kernel};
use crate::kernels::{ProductShape, Task};
use crate::noise;
use crate::outcome::{Outcome, Role, Unit};
use crate::rivals::{self, ByteOperands};

const KERNEL: &str = "gemm_int8";

/// Rows that are compared with the definition.
const EXCERPT_ROWS: usize = 16;

pub(crate) fn task(shape: ProductShape) -> Task {
    let run = move |bench: &Bench| measure(bench, shape);
    Task { kernel: KERNEL, shape: shape.name(), run: Box::new(run) }
}

fn measure(bench: &Bench, shape: ProductShape) -> Result<Outcome> {
    let contest = Contest {
        kernel: KERNEL,
        shape: shape.name(),
        unit: Unit::Gops,
        work: shape.operations(),
        goal: Goal::TimesFloat(3.0),
    };
    let weight = quantized_weight(shape)?;
    let excerpt = quantized_model(ProductShape { rows: EXCERPT_ROWS, ..shape }, &weight)?;
    if let Some(reason) = missing_kernel(bench, &excerpt)? {
        return Ok(contest.skipped(Some(reason)));
    }
    let quantized = Compiled::new(bench, &quantized_model(shape, &weight)?)?;
    let float_excerpt = float_model(ProductShape { rows: EXCERPT_ROWS, ..shape })?;
    let float = Compiled::new(bench, &float_model(shape)?)?;
    let ours = quantized.run()?.0;
    let error = excerpt_error(&excerpt, &ours, 0)?;
    let float_error = excerpt_error(&float_excerpt, &float.run()?.0, 0)?;
    let rows = quantize_rows(&input(shape)?, shape)?;
    let operands = ByteOperands {
        rows: shape.rows,
        depth: shape.depth,
        columns: shape.columns,
        left: &rows.bytes,
        weight: weight.values.as_slice()?,
    };
    let sums = RefCell::new(AlignedBuffer::<i32>::zeroed(shape.rows * shape.columns));
    let mut contestants = vec![
        contest.ceiling(|| bench.dot()),
        contest.timed("cutout int8", Role::Ours, error, || Ok(quantized.run()?.1)),
        contest.timed("cutout f32", Role::OurFloat, float_error, || Ok(float.run()?.1)),
    ];
    for rival in rivals::byte_rivals(&operands) {
        let mut multiply = rival.multiply;
        multiply(&mut sums.borrow_mut());
        let scaled = scaled(&sums.borrow(), &rows, &weight)?;
        let ours = ours.as_slice()?;
        let error = noise::relative_error(ours, &scaled[..ours.len()])?;
        let sums = &sums;
        let call = move || Ok(seconds(|| multiply(&mut sums.borrow_mut())));
        contestants.push(contest.timed(rival.name, Role::Rival, error, call));
    }
    contest.run(contestants, &bench.budget, &bench.progress)
}

fn input(shape: ProductShape) -> Result<Tensor> {
    noise::tensor(1, [shape.rows, shape.depth])
}

fn float_weight(shape: ProductShape) -> Result<Tensor> {
    noise::tensor(2, [shape.columns, shape.depth])
}

fn bias(shape: ProductShape) -> Result<Tensor> {
    noise::tensor(3, [shape.columns])
}

fn quantized_weight(shape: ProductShape) -> Result<QuantizedMatrix> {
    Ok(QuantizedMatrix::quantize(&float_weight(shape)?, Scales::PerRow)?)
}

fn quantized_model(shape: ProductShape, weight: &QuantizedMatrix) -> Result<Model> {
    let model = ModelBuilder::default();
    let x = model.given_input("x", input(shape)?);
    let values = model.graph.constant(weight.values.clone());
    let scales = model.graph.constant(weight.scales.clone());
    let bias = model.graph.constant(bias(shape)?);
    let epilogue = Epilogue { bias: true, ..Epilogue::NONE };
    let op = QuantizedLinear { scales: Scales::PerRow, epilogue };
    model.output_rows(x.apply(op, &[values, scales, bias]), EXCERPT_ROWS);
    model.finish()
}

fn float_model(shape: ProductShape) -> Result<Model> {
    let model = ModelBuilder::default();
    let x = model.given_input("x", input(shape)?);
    let weight = model.graph.constant(float_weight(shape)?);
    let bias = model.graph.constant(bias(shape)?);
    model.output_rows(x.linear(weight) + bias, EXCERPT_ROWS);
    model.finish()
}

/// Rows of bytes with an offset of 128, and the scale of each row.
struct QuantizedRows {
    bytes: AlignedBuffer<u8>,
    steps: Vec<f32>,
}

/// Quantises each row as [`QuantizedLinear`] defines it.
fn quantize_rows(x: &Tensor, shape: ProductShape) -> Result<QuantizedRows> {
    let mut bytes = AlignedBuffer::<u8>::zeroed(shape.rows * shape.depth);
    let mut steps = Vec::with_capacity(shape.rows);
    let rows = x.as_slice::<f32>()?.chunks_exact(shape.depth);
    for (row, target) in rows.zip(bytes.chunks_exact_mut(shape.depth)) {
        let largest = row.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (byte, value) in target.iter_mut().zip(row) {
            *byte = ((value * (127.0 / largest)).round_ties_even() + 128.0) as u8;
        }
        steps.push(largest / 127.0);
    }
    Ok(QuantizedRows { bytes, steps })
}

/// The real values of sums of bytes, with the bias.
fn scaled(sums: &[i32], rows: &QuantizedRows, weight: &QuantizedMatrix) -> Result<Vec<f32>> {
    let scales = weight.scales.as_slice::<f32>()?;
    let bias = noise::tensor(3, [scales.len()])?;
    let bias = bias.as_slice::<f32>()?;
    let mut scaled = Vec::with_capacity(sums.len());
    for (row, step) in sums.chunks_exact(scales.len()).zip(&rows.steps) {
        let columns = row.iter().zip(scales).zip(bias);
        scaled.extend(columns.map(|((sum, scale), bias)| step * (*sum as f32 * scale) + bias));
    }
    Ok(scaled)
}
