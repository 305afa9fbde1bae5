//! Masks as outlines: SVG and GeoJSON.

use std::fmt::Write;

use anyhow::Result;
use cutout_imaging::{Rle, Size, distinct_colour, polygons, to_geojson, to_svg_path};
use serde_json::{Value, json};

use super::Found;

/// An SVG of the size of the picture, one path per mask.
pub(super) fn svg(size: Size, masks: &[Rle]) -> String {
    let Size { width, height } = size;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n"
    );
    for (index, mask) in masks.iter().enumerate() {
        let [red, green, blue] = distinct_colour(index);
        let path = to_svg_path(&polygons(&mask.to_mask()));
        let _infallible = writeln!(
            text,
            "<path fill=\"#{red:02x}{green:02x}{blue:02x}\" fill-rule=\"evenodd\" d=\"{path}\"/>"
        );
    }
    text.push_str("</svg>\n");
    text
}

/// A GeoJSON feature collection in pixels with y pointing down; the properties are the fields of the JSON record.
pub(super) fn geojson(found: &Found<'_>) -> Result<Value> {
    let shown = found.document.annotations.iter().filter(|annotation| annotation.is_best());
    let mut features = Vec::new();
    for (annotation, mask) in shown.zip(found.shown) {
        let geometry: Value = serde_json::from_str(&to_geojson(&polygons(&mask.to_mask())))?;
        let mut properties = serde_json::to_value(annotation)?;
        if let Some(object) = properties.as_object_mut() {
            // The geometry replaces the run lengths.
            object.remove("segmentation");
        }
        features.push(json!({"type": "Feature", "geometry": geometry, "properties": properties}));
    }
    Ok(json!({"type": "FeatureCollection", "features": features}))
}
