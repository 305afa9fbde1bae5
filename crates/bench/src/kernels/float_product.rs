//! Matrix products in single precision on packed weights, ours and the rivals'.

use std::cell::RefCell;

use anyhow::Result;
use cutout_cpu::gemm::{Epilogue, Output, PackedWeights, RowMajor, WeightData, WeightView, gemm};
use cutout_parallel::AlignedBuffer;

use crate::bench::Bench;
use crate::contest::{Contest, seconds};
use crate::goal::Goal;
use crate::kernels::{ProductShape, Task};
use crate::noise::{self, Noise};
use crate::outcome::{Outcome, Role, Unit};
use crate::rivals::{self, FloatOperands};

const KERNEL: &str = "gemm_f32";

/// Elements of our result that are compared with sums in double precision.
const PROBES: usize = 200;

pub(crate) fn task(shape: ProductShape, goal: Goal) -> Task {
    let run = move |bench: &Bench| measure(bench, shape, goal);
    Task { kernel: KERNEL, shape: shape.name(), run: Box::new(run) }
}

fn measure(bench: &Bench, shape: ProductShape, goal: Goal) -> Result<Outcome> {
    let ProductShape { rows, depth, columns } = shape;
    let (left, weight) = (noise::buffer(1, rows * depth), noise::buffer(2, columns * depth));
    let view = WeightView::output_major(WeightData::F32(&weight), columns, depth);
    let packed = PackedWeights::pack(&bench.pool, bench.isa, &view)?;
    let rows_of_left = RowMajor::new(&left, rows, depth, depth);
    // All write to the same memory, so that page placement is the same for all.
    let output = RefCell::new(AlignedBuffer::zeroed(rows * columns));
    let multiply = |output: &mut [f32]| {
        gemm(&bench.pool, &rows_of_left, &packed, &Epilogue::NONE, Output::new(output, columns));
    };
    multiply(&mut output.borrow_mut());
    let ours = output.borrow().to_vec();
    let operands = FloatOperands { rows, depth, columns, left: &left, weight: &weight };
    let contest = Contest {
        kernel: KERNEL,
        shape: shape.name(),
        unit: Unit::Gflops,
        work: shape.operations(),
        goal,
    };
    let call = || Ok(seconds(|| multiply(&mut output.borrow_mut())));
    let mut contestants = vec![
        contest.ceiling(|| bench.multiply_add()),
        contest.timed("cutout", Role::Ours, probe(&operands, &ours), call),
    ];
    for rival in rivals::float_rivals(&operands, bench.threads) {
        let mut multiply = rival.multiply;
        output.borrow_mut().fill(f32::NAN);
        multiply(&mut output.borrow_mut());
        let error = noise::relative_error(&ours, &output.borrow())?;
        let output = &output;
        let call = move || Ok(seconds(|| multiply(&mut output.borrow_mut())));
        contestants.push(contest.timed(rival.name, Role::Rival, error, call));
    }
    drop(ours);
    contest.run(contestants, &bench.budget, &bench.progress)
}

/// Largest difference of some elements from their sums in double precision, relative to the largest of them.
fn probe(operands: &FloatOperands<'_>, ours: &[f32]) -> f64 {
    let FloatOperands { rows, depth, columns, left, weight } = *operands;
    let mut noise = Noise::new(3);
    let (mut largest, mut difference) = (0.0, 0.0);
    for _ in 0..PROBES {
        let (row, column) = (noise.bits() as usize % rows, noise.bits() as usize % columns);
        let pairs = left[row * depth..][..depth].iter().zip(&weight[column * depth..][..depth]);
        let sum: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let found = f64::from(ours[row * columns + column]);
        if found.is_nan() {
            return f64::NAN;
        }
        largest = sum.abs().max(largest);
        difference = (sum - found).abs().max(difference);
    }
    difference / largest
}
