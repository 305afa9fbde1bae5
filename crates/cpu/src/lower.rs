//! What a kernel is compiled from, and what compiling gives.

use cutout_graph::plan::Operand;
use cutout_graph::{DeviceWeights, StaticTensor};
use cutout_parallel::Pool;
use cutout_tensor::TensorType;

use crate::execute::Execute;
use crate::gemm::Arithmetic;

/// What a kernel is compiled from.
pub(crate) struct Site<'a> {
    /// The inputs as the plan lays them out.
    pub(crate) inputs: &'a [Operand],
    /// Type of the output.
    pub(crate) output: &'a TensorType,
    /// The inputs that are weights or constants, as stored (perhaps in half precision) and not read yet.
    pub(crate) statics: Vec<Option<StaticTensor>>,
    /// Where packed forms of weights are kept and shared.
    pub(crate) weights: DeviceWeights<'a>,
    /// The instruction set, and the precision of products.
    pub(crate) arithmetic: Arithmetic,
    /// The threads that pack weights.
    pub(crate) pool: &'a Pool,
}

/// A kernel and the inputs that are packed inside it, which it never reads again.
pub(crate) struct Lowered {
    pub(crate) kernel: Box<dyn Execute>,
    pub(crate) absorbed: Vec<usize>,
}

impl<K: Execute + 'static> From<K> for Lowered {
    fn from(kernel: K) -> Self {
        Lowered { kernel: Box::new(kernel), absorbed: Vec::new() }
    }
}
