//! Image encoders: pixels to embedding.

mod hiera;
mod neck;
mod pyramid;
mod rotary_vit;
mod simple_pyramid;
mod vit;

pub(crate) use hiera::hiera;
pub(crate) use neck::{CHANNEL_NORM_EPSILON, neck};
pub(crate) use pyramid::pyramid;
pub(crate) use rotary_vit::rotary_vit;
pub(crate) use simple_pyramid::{projected_pyramid, simple_pyramid};
pub(crate) use vit::vit;
