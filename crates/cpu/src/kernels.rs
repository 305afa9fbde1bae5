//! The kernels, one file per family of ops.

mod axes;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod layer_norm;
pub(crate) mod reference;
mod rows;
pub(crate) mod softmax;
