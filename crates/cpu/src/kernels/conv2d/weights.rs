//! Weights of convolutions in the forms their kernels read.

use std::sync::Arc;

use cutout_graph::{CompileError, Known, Packed, RunError};
use cutout_parallel::Pool;
use cutout_tensor::{DType, Tensor, TensorError, TensorType};
use half::{bf16, f16};

use crate::execute::Io;
use crate::gemm::{PackedWeights, WeightData, WeightView};
use crate::lower::Site;
use crate::simd::Isa;

/// The input that is the weight.
const WEIGHT: usize = 1;

/// How a kernel wants its weight.
pub(crate) trait Form {
    /// What a weight becomes.
    type Packed: Packed;
    /// A name that stands for this form of this type and for no other.
    fn name(&self) -> String;
    /// Brings a weight, in any float type and layout, into this form.
    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError>;
}

/// A weight in some form: packed once and shared by all programs where it is known when a program is compiled, else in
/// every run.
pub(crate) struct Weight<F: Form> {
    form: F,
    shared: Option<Arc<F::Packed>>,
    ty: TensorType,
}

impl<F: Form> Weight<F> {
    /// The weight of the convolution at `site`, its input 1.
    pub(crate) fn new(form: F, site: &Site<'_>) -> Result<Self, CompileError> {
        let pack = |known: &Known| {
            let pack = |tensor: &Tensor| form.pack(site.pool, tensor);
            site.weights.prepared(known, &form.name(), pack)
        };
        let shared = site.statics[WEIGHT].as_ref().map(pack).transpose()?;
        Ok(Weight { form, shared, ty: site.inputs[WEIGHT].ty.clone() })
    }

    /// The inputs that were packed and are not read any more.
    pub(crate) fn absorbed(&self) -> Vec<usize> {
        if self.shared.is_some() { vec![WEIGHT] } else { Vec::new() }
    }

    /// The packed weight.
    pub(crate) fn get(&self, io: &Io<'_>) -> Result<Arc<F::Packed>, RunError> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(shared));
        }
        let values = io.inputs.f32(WEIGHT).to_vec();
        let tensor = Tensor::from_vec(self.ty.shape.clone(), values)?;
        Ok(Arc::new(self.form.pack(io.pool, &tensor)?))
    }
}

/// Packs a weight `[.., depth axes]` whose first axes have `outputs` elements together.
pub(crate) fn pack_matrix(
    pool: &Pool,
    isa: Isa,
    weight: &Tensor,
    outputs: usize,
) -> Result<PackedWeights, TensorError> {
    let pack = |data: WeightData<'_>| {
        let depth = data.len() / outputs.max(1);
        PackedWeights::pack(pool, isa, &WeightView::output_major(data, outputs, depth))
    };
    match weight.dtype() {
        DType::F16 => pack(WeightData::F16(&weight.to_vec::<f16>()?)),
        DType::BF16 => pack(WeightData::Bf16(&weight.to_vec::<bf16>()?)),
        DType::F32 | DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => {
            pack(WeightData::F32(&weight.cast(DType::F32)?.to_vec::<f32>()?))
        }
    }
}
