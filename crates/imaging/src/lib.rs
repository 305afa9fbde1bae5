//! Pixels in, masks out: pictures from files, the resizes the models were trained with, and everything that happens
//! to a mask after a model has produced its logits.
//!
//! ```text
//! file ──decode──▶ Image ──Preprocess──▶ Tensor f32[1, side, side, 3]        Mapping: original pixels ⇄ model pixels
//! logits f32[h, w] ──Upsampler──▶ rows at the original size ──▶ Rle, area, box, stability        (one pass, no array)
//! Rle ⇄ Mask ──▶ Polygon, small regions removed, overlay, cut-out ──▶ PNG, SVG, GeoJSON, npy      (written atomically)
//! ```
//!
//! Nothing here knows what a model is. Coordinates are (x, y) with the origin in the top left corner; grids are
//! `[height, width]`, row by row.

mod boxes;
mod decode;
mod error;
mod image;
mod mask;
mod preprocess;
mod resize;
mod rle;
mod summary;
mod upsample;

pub use boxes::{Candidate, Rect, non_maximum_suppression};
pub use decode::{DecodeLimits, decode, open};
pub use error::{DecodeError, ImageError};
pub use image::{Image, Size};
pub use mask::Mask;
pub use preprocess::{Fit, Mapping, Preprocess};
pub use resize::{Filter, resize_pillow, resize_torch_bytes, resize_torch_floats};
pub use rle::{Bounds, Rle, RleError, RowScanner};
pub use summary::{Placement, Summary, Threshold, summarize};
pub use upsample::Upsampler;
