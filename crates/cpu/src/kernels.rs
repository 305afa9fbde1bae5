//! The kernels, one file per family of ops.

pub(crate) mod attention;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod linear;
pub(crate) mod reference;
