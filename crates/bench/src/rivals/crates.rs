//! Adapters to the rivals' interfaces.
#![allow(unsafe_code, reason = "`gemm` and `matrixmultiply` take pointers")]

use std::rc::Rc;

use anyhow::{Context, Result};
use cutout_parallel::AlignedBuffer;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, QuantParams};
use rten_tensor::NdTensorView;

use crate::rivals::{ByteOperands, FloatOperands, Rival};

/// Sets the size of the rivals' thread pools.
pub(crate) fn prepare(threads: usize) -> Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .context("the threads of the rivals cannot be started")?;
    // SAFETY: this runs before the program reads its environment or starts threads that do; rayon's workers do not.
    unsafe { std::env::set_var("MATMUL_NUM_THREADS", threads.to_string()) };
    Ok(())
}

/// The rivals in single precision.
pub(crate) fn float_rivals<'a>(
    operands: &FloatOperands<'a>,
    threads: usize,
) -> Vec<Rival<'a, f32>> {
    let transposed = Rc::new(transposed(operands));
    vec![
        faer_rival(*operands, &transposed, threads),
        gemm_rival(*operands, &transposed, threads),
        rten_rival(*operands),
        matrixmultiply_rival(*operands, &transposed),
    ]
}

/// The weight as `[depth, columns]`. Crates that cannot pack in advance are mostly faster with it than with `[columns, depth]`,
/// the order of checkpoints; `gemm` nearly four times for few rows.
fn transposed(operands: &FloatOperands<'_>) -> AlignedBuffer<f32> {
    let FloatOperands { depth, columns, weight, .. } = *operands;
    let mut transposed = AlignedBuffer::zeroed(depth * columns);
    for (k, row) in transposed.chunks_exact_mut(columns).enumerate() {
        row.iter_mut().enumerate().for_each(|(n, value)| *value = weight[n * depth + k]);
    }
    transposed
}

fn faer_rival<'a>(
    operands: FloatOperands<'a>,
    right: &Rc<AlignedBuffer<f32>>,
    threads: usize,
) -> Rival<'a, f32> {
    let FloatOperands { rows, depth, columns, left, .. } = operands;
    let left = MatRef::from_row_major_slice(left, rows, depth);
    let right = Rc::clone(right);
    let parallel = if threads > 1 { Par::rayon(threads) } else { Par::Seq };
    let multiply = move |output: &mut [f32]| {
        let right = MatRef::from_row_major_slice(&right, depth, columns);
        let output = MatMut::from_row_major_slice_mut(output, rows, columns);
        matmul(output, Accum::Replace, left, right, 1.0, parallel);
    };
    Rival { name: "faer".to_owned(), multiply: Box::new(multiply) }
}

fn gemm_rival<'a>(
    operands: FloatOperands<'a>,
    right: &Rc<AlignedBuffer<f32>>,
    threads: usize,
) -> Rival<'a, f32> {
    let FloatOperands { rows, depth, columns, left, .. } = operands;
    let right = Rc::clone(right);
    let parallel =
        if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
    let multiply = move |output: &mut [f32]| {
        check_lengths(&operands, &right, output);
        let (output, left, right) = (output.as_mut_ptr(), left.as_ptr(), right.as_ptr());
        let (row, left_row) = (columns as isize, depth as isize);
        // SAFETY: the strides stay inside the slices, whose lengths were checked; the output is not among the inputs.
        unsafe {
            gemm::gemm(
                rows, columns, depth, output, 1, row, false, left, 1, left_row, right, 1, row, 0.0,
                1.0, false, false, false, parallel,
            );
        }
    };
    Rival { name: "gemm".to_owned(), multiply: Box::new(multiply) }
}

fn matrixmultiply_rival<'a>(
    operands: FloatOperands<'a>,
    right: &Rc<AlignedBuffer<f32>>,
) -> Rival<'a, f32> {
    let FloatOperands { rows, depth, columns, left, .. } = operands;
    let right = Rc::clone(right);
    let multiply = move |output: &mut [f32]| {
        check_lengths(&operands, &right, output);
        let (output, left, right) = (output.as_mut_ptr(), left.as_ptr(), right.as_ptr());
        let (row, left_row) = (columns as isize, depth as isize);
        // SAFETY: the strides stay inside the slices, whose lengths were checked; the output is not among the inputs.
        unsafe {
            matrixmultiply::sgemm(
                rows, depth, columns, 1.0, left, left_row, 1, right, row, 1, 0.0, output, row, 1,
            );
        }
    };
    Rival { name: "matrixmultiply".to_owned(), multiply: Box::new(multiply) }
}

fn check_lengths(operands: &FloatOperands<'_>, right: &[f32], output: &[f32]) {
    let FloatOperands { rows, depth, columns, left, .. } = operands;
    let found = [left.len(), right.len(), output.len()];
    assert_eq!(found, [rows * depth, depth * columns, rows * columns]);
}

fn rten_rival(operands: FloatOperands<'_>) -> Rival<'_, f32> {
    let FloatOperands { rows, depth, columns, left, weight } = operands;
    let executor = GemmExecutor::<f32>::new();
    let weight = NdTensorView::from_data([columns, depth], weight);
    let packed = executor.prepack_b(weight.transposed());
    let multiply = move |output: &mut [f32]| {
        let left = GemmInputA::Unpacked(NdTensorView::from_data([rows, depth], left));
        executor
            .gemm(output, left, GemmInputB::Packed(&packed), GemmOptions::default())
            .expect("the shapes agree");
    };
    Rival { name: "rten-gemm".to_owned(), multiply: Box::new(multiply) }
}

/// The rivals in bytes.
pub(crate) fn byte_rivals<'a>(operands: &ByteOperands<'a>) -> Vec<Rival<'a, i32>> {
    let ByteOperands { rows, depth, columns, left, weight } = *operands;
    let executor = GemmExecutor::<u8, i8, i32>::new();
    if executor.may_saturate() {
        // Without dot-product instructions its sums may overflow for bytes of this range.
        return Vec::new();
    }
    let weight = NdTensorView::from_data([columns, depth], weight);
    let packed = executor.prepack_b(weight.transposed());
    let zeros = vec![128_u8; rows];
    let multiply = move |output: &mut [i32]| {
        let left = GemmInputA::Unpacked(NdTensorView::from_data([rows, depth], left));
        let left_zeros = Some(QuantParams { zero_point: &zeros });
        let options = GemmOptions { a_quant: left_zeros, ..GemmOptions::default() };
        executor
            .gemm(output, left, GemmInputB::Packed(&packed), options)
            .expect("the shapes agree");
    };
    vec![Rival { name: "rten-gemm int8".to_owned(), multiply: Box::new(multiply) }]
}
