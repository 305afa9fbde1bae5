//! Linear layers with weights of signed bytes.

use std::sync::Arc;

use cutout_graph::{CompileError, RunError, ops};
use cutout_parallel::Pool;
use cutout_tensor::{LazyTensor, Scales, Tensor, TensorError};

use crate::execute::{Execute, Io};
use crate::gemm::int8::{ByteUnit, Int8View, PackedInt8, gemm_int8};
use crate::gemm::{self, Arithmetic, Epilogue, RowMajor};
use crate::kernels::linear::form;
use crate::lower::{Lowered, Site};
use crate::simd::Isa;

/// Positions of the weight and its scales among the inputs.
const VALUES: usize = 1;
const SCALES: usize = 2;

/// `epilogue(quantise(x) · weightᵀ)`.
struct QuantizedLinear {
    weight: Weight,
    epilogue: ops::Epilogue,
    rows: usize,
    row_stride: usize,
    outputs: usize,
    depth: usize,
    granularity: Scales,
    arithmetic: Arithmetic,
}

/// Where the weight comes from.
enum Weight {
    /// Packed when the program was compiled.
    Packed(Arc<PackedInt8>),
    /// An input of the program.
    AtRunTime,
}

/// The kernel of a quantised linear layer.
pub(crate) fn lower(op: &ops::QuantizedLinear, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let (rows, row_stride) =
        site.inputs[0].layout.as_rows().expect("the memory plan copies what has no rows");
    let &[outputs, depth] = &site.inputs[VALUES].ty.shape[..] else {
        panic!("inference checked the weight's rank")
    };
    let mut kernel = QuantizedLinear {
        weight: Weight::AtRunTime,
        epilogue: op.epilogue,
        rows,
        row_stride,
        outputs,
        depth,
        granularity: op.scales,
        arithmetic: site.arithmetic,
    };
    let (Some(values), Some(scales)) = (&site.statics[VALUES], &site.statics[SCALES]) else {
        return Ok(kernel.into());
    };
    let (form, unit) = (form("quantised linear", site), site.arithmetic.bytes.name());
    let form = format!("{form} {unit} {:?} {}", op.scales, scales.name());
    let packed = match values.unquantized() {
        // Values and scales of one matrix: it is read once, while it is packed.
        Some(matrix) if op.scales == Scales::PerRow => {
            let quantize =
                |matrix: &LazyTensor| PackedInt8::quantize(site.pool, kernel.path(), matrix);
            site.weights.prepared_by_rows(&matrix, &form, quantize)?
        }
        Some(_) | None => {
            let pack = |values: &Tensor| kernel.pack(values, &scales.tensor()?, site.pool);
            site.weights.prepared(values, &form, pack)?
        }
    };
    kernel.weight = Weight::Packed(packed);
    Ok(Lowered { kernel: Box::new(kernel), absorbed: vec![VALUES, SCALES] })
}

impl QuantizedLinear {
    fn pack(
        &self,
        values: &Tensor,
        scales: &Tensor,
        pool: &Pool,
    ) -> Result<PackedInt8, TensorError> {
        let (values, scales) = (values.to_contiguous()?, scales.to_contiguous()?);
        self.pack_view(pool, &self.view(values.as_slice()?, scales.as_slice()?))
    }

    fn pack_view(&self, pool: &Pool, view: &Int8View<'_>) -> Result<PackedInt8, TensorError> {
        PackedInt8::pack(pool, self.path(), view)
    }

    /// The instructions and the unit that multiply.
    fn path(&self) -> (Isa, ByteUnit) {
        (self.arithmetic.isa, self.arithmetic.bytes)
    }

    fn view<'a>(&self, data: &'a [i8], scales: &'a [f32]) -> Int8View<'a> {
        let QuantizedLinear { outputs, depth, granularity, .. } = *self;
        Int8View { data, scales, outputs, depth, granularity }
    }
}

impl Execute for QuantizedLinear {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let packed;
        let weights = match &self.weight {
            Weight::Packed(weights) => weights.as_ref(),
            Weight::AtRunTime => {
                let view = self.view(io.inputs.slice::<i8>(VALUES), io.inputs.f32(SCALES));
                packed = self.pack_view(io.pool, &view)?;
                &packed
            }
        };
        let left = RowMajor::new(io.inputs.f32(0), self.rows, self.depth, self.row_stride);
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, SCALES + 1, self.outputs);
        let output = gemm::Output::new(io.output.f32(), self.outputs);
        gemm_int8(io.pool, &left, weights, &epilogue, output);
        Ok(())
    }
}
