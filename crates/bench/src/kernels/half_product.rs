//! Matrix products in bf16 with sums in single precision, rounding of the rows included, compared with our product in single
//! precision.

use std::cell::RefCell;

use anyhow::Result;
use cutout_cpu::gemm::{Arithmetic, Epilogue, HalfUnit, Matrix, Output, RowMajor};
use cutout_parallel::AlignedBuffer;
use cutout_tensor::{LazyTensor, Tensor};

use crate::bench::Bench;
use crate::contest::{Contest, seconds};
use crate::goal::Goal;
use crate::kernels::{ProductShape, Task};
use crate::noise;
use crate::outcome::{Outcome, Role, Unit};

const KERNEL: &str = "gemm_bf16";

pub(crate) fn task(shape: ProductShape) -> Task {
    let run = move |bench: &Bench| measure(bench, shape);
    Task { kernel: KERNEL, shape: shape.name(), run: Box::new(run) }
}

fn measure(bench: &Bench, shape: ProductShape) -> Result<Outcome> {
    let ProductShape { rows, depth, columns } = shape;
    let contest = Contest {
        kernel: KERNEL,
        shape: shape.name(),
        unit: Unit::Gflops,
        work: shape.operations(),
        goal: Goal::Share(0.8),
    };
    let half = bench.cpu.half_unit();
    if half != HalfUnit::Dots {
        let reason = format!("no ceiling is known for bf16 by {}", half.name());
        return Ok(contest.skipped(Some(reason)));
    }
    // The inputs are bf16 numbers, so that both precisions have the same exact result.
    let round = |value: &mut f32| *value = f32::from_bits(value.to_bits() & !0xFFFF);
    let mut left = noise::buffer(1, rows * depth);
    left.iter_mut().for_each(round);
    let mut weight = noise::tensor(2, [columns, depth])?.to_vec::<f32>()?;
    weight.iter_mut().for_each(round);
    let weight = Tensor::from_vec([columns, depth], weight)?;
    let weight = LazyTensor::from(weight);
    let source = RowMajor::new(&left, rows, depth, depth);
    let output = RefCell::new(AlignedBuffer::zeroed(rows * columns));
    let pack = |half| {
        let arithmetic = Arithmetic { half, ..Arithmetic::single(bench.isa) };
        Matrix::pack(&bench.pool, arithmetic, &weight, columns)
    };
    let multiply = |matrix: &Matrix| {
        let mut output = output.borrow_mut();
        let target = Output::new(&mut output, columns);
        matrix.multiply(&bench.pool, &source, &Epilogue::NONE, target);
    };
    let (ours, single) = (pack(Some(half))?, pack(None)?);
    multiply(&single);
    let expected = output.borrow().to_vec();
    multiply(&ours);
    let error = noise::relative_error(&expected, &output.borrow())?;
    let contestants = vec![
        contest.ceiling(|| bench.half_dot()),
        contest.timed("cutout bf16", Role::Ours, error, || Ok(seconds(|| multiply(&ours)))),
        contest.timed("cutout f32", Role::OurFloat, 0.0, || Ok(seconds(|| multiply(&single)))),
    ];
    contest.run(contestants, &bench.budget, &bench.progress)
}
