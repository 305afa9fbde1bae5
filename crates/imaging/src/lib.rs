//! Images and masks: decoding, the resizes that the models were trained with, and post-processing of mask logits.
//!
//! ```text
//! file ──decode──▶ Image ──Preprocess──▶ Tensor f32[1, side, side, 3]        Mapping: original pixels ⇄ model pixels
//! logits f32[h, w] ──Upsampler──▶ rows at the original size ──▶ Rle, area, box, stability        (one pass, no array)
//! Rle ⇄ Mask ──▶ Polygon, small regions removed, overlay, cut-out ──▶ PNG, SVG, GeoJSON, npy      (written atomically)
//! ```
//!
//! The crate knows nothing about models. Coordinates are (x, y) with the origin in the top left corner; grids are
//! `[height, width]` in row-major order.

mod boxes;
mod decode;
mod encode;
mod error;
mod image;
mod mask;
mod npy;
mod picture;
mod polygon;
mod preprocess;
mod regions;
mod resize;
mod rle;
mod summary;
mod tags;
mod upsample;
mod webp;
mod write;

pub use boxes::{Candidate, Rect, non_maximum_suppression};
pub use decode::{DecodeLimits, EXTENSIONS, decode, is_picture_name, open};
pub use encode::{
    EncodeError, MaskDepth, encode_image, encode_jpeg, encode_labels, encode_mask, encode_rgba,
};
pub use error::{DecodeError, ImageError};
pub use image::{Image, Size};
pub use mask::Mask;
pub use npy::{NPY_MAGIC, NpyError, read_npy};
pub use picture::{cut_out, distinct_colour, label_map, overlay, overlay_colours, overlay_with};
pub use polygon::{
    Point, Polygon, fill_polygons, polygons, simplify, single_ring, to_geojson, to_svg_path, to_wkb,
};
pub use preprocess::{Fit, FitWindows, Mapping, Preprocess};
pub use regions::{
    Connectivity, RegionRuns, Regions, SmallRegions, connected_regions, remove_small_regions,
};
pub use resize::{
    Filter, WindowTable, WindowWeights, resize_pillow, resize_torch_bytes, resize_torch_floats,
};
pub use rle::{Bounds, Rle, RleError, RowScanner};
pub use summary::{Placement, Summary, Threshold, runs_above_zero, summarize, summarize_bits};
pub use tags::{Tag, has_letter, tagged};
pub use upsample::{AboveZero, Upsampler};
pub use webp::webp_frame_size;
pub use write::{WriteError, write, write_npy, write_with};
