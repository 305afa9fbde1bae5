//! Pictures from files, and masks as pixels, run lengths, polygons and files.
//!
//! | from | to | with |
//! |---|---|---|
//! | a file, bytes | [`Image`] | [`open`], [`decode`] |
//! | pixels | [`Image`], [`Mask`] | [`Image::from_rgb`], [`Mask::from_pixels`] |
//! | [`Mask`] ⇄ [`Rle`] | | [`Mask::to_rle`], [`Rle::to_mask`] |
//! | [`Mask`] | PNG, SVG, GeoJSON | [`encode_mask`], [`polygons`] with [`to_svg_path`] or [`to_geojson`] |
//! | [`Rle`] | a NumPy array, a label map, an overlay | [`write_npy`], [`label_map`], [`overlay`] |
//! | bytes | a file, complete or not at all | [`write()`] |

// Pictures.
#[doc(inline)]
pub use cutout_imaging::{DecodeLimits, Image, Mapping, Size, decode, encode_image, open};

// Masks.
#[doc(inline)]
pub use cutout_imaging::{
    Bounds, Mask, Point, Polygon, Rect, Rle, SmallRegions, Summary, Threshold, fill_polygons,
    polygons, remove_small_regions, simplify, to_geojson, to_svg_path, to_wkb,
};

// Pictures of masks.
#[doc(inline)]
pub use cutout_imaging::{
    MaskDepth, cut_out, distinct_colour, encode_labels, encode_mask, encode_rgba, label_map,
    overlay, overlay_colours, overlay_with,
};

// Files.
#[doc(inline)]
pub use cutout_imaging::{write, write_npy, write_with};

// Errors.
#[doc(inline)]
pub use cutout_imaging::{DecodeError, EncodeError, ImageError, RleError, WriteError};
