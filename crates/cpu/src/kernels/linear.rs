//! Linear layers: packed products with fused epilogues.

use std::sync::Arc;

use cutout_graph::{CompileError, RunError, ops};
use cutout_tensor::{LazyTensor, Tensor, TensorError, memory};

use crate::execute::{Execute, Io};
use crate::gemm::{
    self, Arithmetic, BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, Epilogue, Matrix,
    RowMajor, batched_gemm,
};
use crate::lower::{Lowered, Site};

/// Position of the weight among the inputs.
const WEIGHT: usize = 1;

/// `epilogue(x · weightᵀ)` with a weight that was packed when the program was compiled.
struct Linear {
    weights: Arc<Matrix>,
    epilogue: ops::Epilogue,
    rows: usize,
    row_stride: usize,
}

/// The same with a weight that the program computes.
struct LinearAtRunTime {
    arithmetic: Arithmetic,
    outputs: usize,
    depth: usize,
    epilogue: ops::Epilogue,
    rows: usize,
    row_stride: usize,
}

/// The kernel of a linear layer.
pub(crate) fn lower(op: &ops::Linear, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let (rows, row_stride) =
        site.inputs[0].layout.as_rows().expect("the memory plan copies what has no rows");
    let epilogue = op.epilogue;
    let &[outputs, depth] = &site.inputs[WEIGHT].ty.shape[..] else {
        panic!("inference checked the weight's rank")
    };
    let Some(known) = &site.statics[WEIGHT] else {
        let arithmetic = site.arithmetic;
        return Ok(
            LinearAtRunTime { arithmetic, outputs, depth, epilogue, rows, row_stride }.into()
        );
    };
    let pack = |weight: &LazyTensor| Matrix::pack(site.pool, site.arithmetic, weight, outputs);
    let weights = site.weights.prepared_by_rows(known, &form("linear", site), pack)?;
    let kernel = Box::new(Linear { weights, epilogue, rows, row_stride });
    Ok(Lowered { kernel, absorbed: vec![WEIGHT] })
}

/// Name of a packed form: the layout differs between instruction sets and precisions.
pub(crate) fn form(kind: &str, site: &Site<'_>) -> String {
    format!("{kind} {}", site.arithmetic.name())
}

impl Execute for Linear {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let columns = self.weights.outputs();
        let left =
            RowMajor::new(io.inputs.f32(0), self.rows, self.weights.depth(), self.row_stride);
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, WEIGHT + 1, columns);
        let output = gemm::Output::new(io.output.f32(), columns);
        self.weights.multiply(io.pool, &left, &epilogue, output);
        Ok(())
    }
}

impl Execute for LinearAtRunTime {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let LinearAtRunTime { outputs, depth, rows, row_stride, .. } = *self;
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, WEIGHT + 1, outputs);
        let output = io.output.f32();
        if self.arithmetic.half.is_some() {
            let weight = memory::copied(io.inputs.f32(WEIGHT)).map_err(TensorError::from)?;
            let weight = Tensor::from_vec([outputs, depth], weight)?;
            let weight = Matrix::pack(io.pool, self.arithmetic, &weight.into(), outputs)?;
            let left = RowMajor::new(io.inputs.f32(0), rows, depth, row_stride);
            weight.multiply(io.pool, &left, &epilogue, gemm::Output::new(output, outputs));
            return Ok(());
        }
        let product = BatchedProduct {
            isa: io.isa,
            batch: 1,
            rows,
            columns: outputs,
            depth,
            left: BatchedLeft { data: io.inputs.f32(0), batch_stride: 0, row_stride },
            right: BatchedRight {
                data: io.inputs.f32(WEIGHT),
                batch_stride: 0,
                depth_stride: 1,
                column_stride: depth,
            },
        };
        let output = BatchedOutput { data: output, batch_stride: 0, row_stride: outputs };
        batched_gemm(io.pool, &product, &epilogue, output);
        Ok(())
    }
}
