//! The kernels, one file per family of ops.

pub(crate) mod attention;
pub(crate) mod bilinear;
pub(crate) mod conv2d;
pub(crate) mod conv_transpose2d;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod epilogue;
pub(crate) mod grid_sample;
pub(crate) mod image;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod max_pool2d;
pub(crate) mod quantized_linear;
pub(crate) mod reference;
pub(crate) mod resize;
pub(crate) mod roi_align;
