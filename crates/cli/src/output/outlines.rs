//! Masks as outlines: SVG, GeoJSON and YOLO.

use std::fmt::Write;

use anyhow::Result;
use clap::Args;
use cutout_imaging::{
    ImageError, Polygon, Rle, Size, distinct_colour, polygons, simplify, single_ring, to_geojson,
    to_svg_path,
};
use serde_json::{Value, json};

use super::Found;

/// How outlines are written.
#[derive(Args)]
pub(crate) struct OutlineOptions {
    /// Write outlines with fewer corners, at most this far from the edges of the pixels, in SVG, GeoJSON, YOLO and COCO
    /// files; COCO files then hold polygons instead of run lengths. 0 keeps every corner
    #[arg(long, value_name = "PIXELS", value_parser = parse_tolerance, allow_negative_numbers = true)]
    pub(crate) simplify: Option<f64>,
}

/// A tolerance of outlines, in pixels.
pub(crate) fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1e6).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err("a number of pixels from 0 on".to_owned()),
    }
}

/// The outlines of a mask; without a tolerance, along the edges of the pixels.
pub(super) fn outlines(mask: &Rle, tolerance: Option<f64>) -> Result<Vec<Polygon>, ImageError> {
    Ok(simplify(&polygons(&mask.to_mask()?)?, tolerance.unwrap_or(0.0)))
}

/// An SVG of the size of the picture, one path per mask.
pub(super) fn svg(size: Size, masks: &[Rle], tolerance: Option<f64>) -> Result<String> {
    let Size { width, height } = size;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n"
    );
    for (index, mask) in masks.iter().enumerate() {
        let [red, green, blue] = distinct_colour(index);
        let path = to_svg_path(&outlines(mask, tolerance)?);
        let _infallible = writeln!(
            text,
            "<path fill=\"#{red:02x}{green:02x}{blue:02x}\" fill-rule=\"evenodd\" d=\"{path}\"/>"
        );
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// A GeoJSON feature collection in pixels with y pointing down; the properties are the fields of the JSON record.
pub(super) fn geojson(found: &Found<'_>, tolerance: Option<f64>) -> Result<Value> {
    let shown = found.document.annotations.iter().filter(|annotation| annotation.is_best());
    let mut features = Vec::new();
    for (annotation, mask) in shown.zip(found.shown) {
        let geometry: Value = serde_json::from_str(&to_geojson(&outlines(mask, tolerance)?))?;
        let mut properties = serde_json::to_value(annotation)?;
        if let Some(object) = properties.as_object_mut() {
            // The geometry replaces the run lengths.
            object.remove("segmentation");
        }
        features.push(json!({"type": "Feature", "geometry": geometry, "properties": properties}));
    }
    Ok(json!({"type": "FeatureCollection", "features": features}))
}

/// YOLO's segmentation labels: a line for each mask with its class, counted from 0, and its corners in 0..1. The parts and
/// holes of a mask are joined to one ring. An empty mask has no line.
pub(crate) fn yolo<'a>(
    size: Size,
    masks: impl Iterator<Item = (usize, &'a Rle)>,
    tolerance: Option<f64>,
) -> Result<String> {
    let (width, height) = (size.width as f64, size.height as f64);
    let mut text = String::new();
    for (class, mask) in masks {
        let ring = single_ring(&outlines(mask, tolerance)?);
        if ring.is_empty() {
            continue;
        }
        let _infallible = write!(text, "{class}");
        for [x, y] in ring {
            let _infallible = write!(text, " {} {}", share(x / width), share(y / height));
        }
        text.push('\n');
    }
    Ok(text)
}

/// A number in 0..1 with at most 6 decimals.
fn share(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
