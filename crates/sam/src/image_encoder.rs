//! Image encoders: pixels to embedding.

mod neck;
mod vit;

pub(crate) use neck::CHANNEL_NORM_EPSILON;
pub(crate) use vit::vit;
