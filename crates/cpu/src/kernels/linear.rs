//! Linear layers: packed products with fused epilogues.

use std::sync::Arc;

use cutout_graph::{CompileError, RunError, ops};
use cutout_tensor::{DType, Tensor, TensorError};
use half::{bf16, f16};

use crate::execute::{Execute, Io};
use crate::gemm::{
    self, BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, Epilogue, PackedWeights,
    RowMajor, WeightData, batched_gemm,
};
use crate::kernels::conv2d::pack_matrix;
use crate::lower::{Lowered, Site};

/// Position of the weight among the inputs.
const WEIGHT: usize = 1;

/// `epilogue(x · weightᵀ)` with a weight that was packed when the program was compiled.
struct Linear {
    weights: Arc<PackedWeights>,
    epilogue: ops::Epilogue,
    rows: usize,
    row_stride: usize,
}

/// The same with a weight that the program computes.
struct LinearAtRunTime {
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
        return Ok(LinearAtRunTime { outputs, depth, epilogue, rows, row_stride }.into());
    };
    let pack = |tensor: &Tensor| pack_matrix(site.pool, site.isa, tensor, outputs);
    let weights = site.weights.prepared(known, &form("linear", site), pack)?;
    let kernel = Box::new(Linear { weights, epilogue, rows, row_stride });
    Ok(Lowered { kernel, absorbed: vec![WEIGHT] })
}

/// Name of a packed form: the layout differs between instruction sets.
pub(crate) fn form(kind: &str, site: &Site<'_>) -> String {
    format!("{kind} {}", site.isa.name())
}

/// The elements of a contiguous float tensor.
pub(crate) fn weight_data(tensor: &Tensor) -> Result<WeightData<'_>, TensorError> {
    match tensor.dtype() {
        DType::F32 => Ok(WeightData::F32(tensor.as_slice::<f32>()?)),
        DType::F16 => Ok(WeightData::F16(tensor.as_slice::<f16>()?)),
        DType::BF16 => Ok(WeightData::Bf16(tensor.as_slice::<bf16>()?)),
        found @ (DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool) => {
            Err(TensorError::Type { expected: DType::F32, found })
        }
    }
}

impl Execute for Linear {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let columns = self.weights.outputs();
        let left =
            RowMajor::new(io.inputs.f32(0), self.rows, self.weights.depth(), self.row_stride);
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, WEIGHT + 1, columns);
        let output = gemm::Output::new(io.output.f32(), columns);
        gemm::gemm(io.pool, &left, &self.weights, &epilogue, output);
        Ok(())
    }
}

impl Execute for LinearAtRunTime {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let LinearAtRunTime { outputs, depth, rows, row_stride, .. } = *self;
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, WEIGHT + 1, outputs);
        let output = io.output.f32();
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
