//! The fast kernels of Hopper: which of them can take an operation, and how it is launched.
//!
//! Every function here answers with launches, or with `None` where no kernel of `kernels/sm90` takes the shapes, strides or types; the
//! general kernels do those. All of it is data: nothing here needs a card.

pub mod attention;
pub mod convolution;
pub mod norm;
mod operand;
pub mod product;
pub mod split;
pub mod split_attention;
#[cfg(test)]
mod tests;
pub mod tiles;
pub mod units;
pub mod window;

pub use operand::{Matrix, Tokens};
