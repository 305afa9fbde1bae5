//! Weights of convolutions in the packed forms that the kernels read.

use std::sync::Arc;

use cutout_graph::{CompileError, Packed, RunError, StaticTensor};
use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError, TensorType, memory};

use crate::execute::Io;
use crate::lower::Site;

/// The input that is the weight.
pub(super) const WEIGHT: usize = 1;

/// The packed form of a kernel's weight.
pub(crate) trait Form {
    /// The packed weight.
    type Packed: Packed;
    /// Unique name of the form.
    fn name(&self) -> String;
    /// Packs a weight of any float type and layout.
    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError>;
}

/// A weight in a packed form. If it is known when a program is compiled, it is packed once and shared by all programs, else it
/// is packed in every run.
pub(crate) struct Weight<F: Form> {
    form: F,
    shared: Option<Arc<F::Packed>>,
    ty: TensorType,
}

impl<F: Form> Weight<F> {
    /// The weight of the convolution at `site`, its input 1.
    pub(crate) fn new(form: F, site: &Site<'_>) -> Result<Self, CompileError> {
        let pack = |known: &StaticTensor| {
            let pack = |tensor: &Tensor| form.pack(site.pool, tensor);
            site.weights.prepared(known, &form.name(), pack)
        };
        let shared = site.statics[WEIGHT].as_ref().map(pack).transpose()?;
        Ok(Weight { form, shared, ty: site.inputs[WEIGHT].ty.clone() })
    }

    /// The inputs that were packed and are no longer read.
    pub(crate) fn absorbed(&self) -> Vec<usize> {
        if self.shared.is_some() { vec![WEIGHT] } else { Vec::new() }
    }

    /// The packed weight.
    pub(crate) fn get(&self, io: &Io<'_>) -> Result<Arc<F::Packed>, RunError> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(shared));
        }
        let values = memory::copied(io.inputs.f32(WEIGHT)).map_err(TensorError::from)?;
        let tensor = Tensor::from_vec(self.ty.shape.clone(), values)?;
        Ok(Arc::new(self.form.pack(io.pool, &tensor)?))
    }
}
