//! The kernels, one file per family of ops.

pub(crate) mod arg_max;
mod axes;
pub(crate) mod cast;
pub(crate) mod copy;
pub(crate) mod cumulative_sum;
pub(crate) mod elementwise;
mod fold;
pub(crate) mod gather;
pub(crate) mod group_norm;
pub(crate) mod layer_norm;
pub(crate) mod logic;
pub(crate) mod pad;
pub(crate) mod reduce;
pub(crate) mod reference;
pub(crate) mod rope;
mod rows;
pub(crate) mod softmax;
