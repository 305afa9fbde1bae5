//! The components that models are made of: functions from values to values, shared by all families.

pub(crate) mod detector;
pub(crate) mod fusion_encoder;
pub(crate) mod geometry_encoder;
pub(crate) mod image_encoder;
pub(crate) mod layers;
pub(crate) mod mask_choice;
pub(crate) mod mask_decoder;
pub(crate) mod memory;
pub(crate) mod multi_head;
pub(crate) mod multiplex_decoder;
pub(crate) mod positions;
pub(crate) mod prompt_encoder;
pub(crate) mod segmentation_head;
pub(crate) mod text_encoder;
pub(crate) mod two_way_transformer;
