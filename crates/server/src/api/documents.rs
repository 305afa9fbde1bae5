//! Masks as SVG, COCO and GeoJSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use cutout_imaging::{Polygon, Rle, polygons, simplify, to_geojson, to_svg_path};
use serde_json::{Value, json};

use super::exports::Export;
use super::types::RunLengths;
use crate::problem::Problem;

/// An SVG of the size of the picture, one path for each object with its name as title.
pub(super) fn svg(export: &Export) -> Result<String, Problem> {
    let (width, height) = (export.size.width, export.size.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n"
    );
    for object in &export.objects {
        let [red, green, blue] = object.colour;
        let path = to_svg_path(&outlines(&object.rle, export.simplify)?);
        let title = escaped(&object.name);
        let _infallible = writeln!(
            text,
            "<path fill=\"#{red:02x}{green:02x}{blue:02x}\" fill-rule=\"evenodd\" d=\"{path}\"><title>{title}</title></path>"
        );
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// A COCO data set of one picture. Names of objects are its categories.
pub(super) fn coco(export: &Export) -> Result<Vec<u8>, Problem> {
    let mut categories: BTreeMap<&str, usize> = BTreeMap::new();
    for object in &export.objects {
        let next = categories.len() + 1;
        categories.entry(category(&object.name)).or_insert(next);
    }
    let mut annotations = Vec::new();
    for (index, object) in export.objects.iter().enumerate() {
        let mut annotation = json!({
            "id": index + 1,
            "image_id": 1,
            "category_id": categories[category(&object.name)],
            "iscrowd": 0,
            "segmentation": segmentation(&object.rle, export.simplify)?,
            "area": object.rle.area(),
            "bbox": object.rle.coco_box(),
        });
        if let Some(score) = object.score {
            annotation["score"] = json!(score);
        }
        annotations.push(annotation);
    }
    let mut listed: Vec<(&str, usize)> = categories.into_iter().collect();
    listed.sort_by_key(|(_, id)| *id);
    let category = |(name, id): (&str, usize)| json!({"id": id, "name": name});
    let (width, height) = (export.size.width, export.size.height);
    written(&json!({
        "info": {"description": export.model},
        "images": [{"id": 1, "file_name": export.file_name, "width": width, "height": height}],
        "categories": listed.into_iter().map(category).collect::<Vec<Value>>(),
        "annotations": annotations,
    }))
}

/// A GeoJSON feature collection in pixels with y pointing down.
pub(super) fn geojson(export: &Export) -> Result<Vec<u8>, Problem> {
    let mut features = Vec::new();
    for object in &export.objects {
        let text = to_geojson(&outlines(&object.rle, export.simplify)?);
        let geometry: Value =
            serde_json::from_str(&text).map_err(|error| Problem::Internal(error.to_string()))?;
        features.push(json!({
            "type": "Feature",
            "geometry": geometry,
            "properties": {
                "name": object.name,
                "score": object.score,
                "area": object.rle.area(),
                "bbox": object.rle.coco_box(),
            },
        }));
    }
    written(&json!({"type": "FeatureCollection", "features": features}))
}

/// The category of an object; those without a name are objects.
fn category(name: &str) -> &str {
    if name.is_empty() { "object" } else { name }
}

/// Run lengths, or outlines if a tolerance is given. An empty mask has no outline.
fn segmentation(rle: &Rle, tolerance: Option<f64>) -> Result<Value, Problem> {
    if tolerance.is_some() && rle.area() > 0 {
        let rings: Vec<Vec<f64>> = outlines(rle, tolerance)?.iter().map(Polygon::to_coco).collect();
        return Ok(json!(rings));
    }
    Ok(json!(RunLengths::of(rle)))
}

fn outlines(rle: &Rle, tolerance: Option<f64>) -> Result<Vec<Polygon>, Problem> {
    let found = polygons(&rle.to_mask()?).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(simplify(&found, tolerance.unwrap_or(0.0)))
}

fn written(value: &Value) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|error| Problem::Internal(error.to_string()))
}

/// Text between the tags of XML. Characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '\t' | '\n' | '\r' => safe.push(c),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_tag() {
        assert_eq!(escaped("<script>&\u{0}\u{ffff}ä"), "&lt;script&gt;&amp;ä");
    }
}
