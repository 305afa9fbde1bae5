//! CVAT's detectors: the labels of the server are phrases that a model finds.

use cutout_imaging::Rle;
use cutout_sam::Find;
use serde_json::{Value, json};

use super::{PREFIX, Request, function_of};
use crate::dialects::{Found, largest_outline, outlines};
use crate::models::Entry;
use crate::problem::Problem;
use crate::server::App;

/// What stands behind the name of a model in the name of its detector.
pub(super) const SUFFIX: &str = "-labels";

/// Name of the detector of a model.
pub(super) fn name_of(entry: &Entry) -> String {
    format!("{PREFIX}{}{SUFFIX}", entry.source.id)
}

/// A model as a detector of labels.
pub(super) fn described(entry: &Entry, labels: &[String], port: u16) -> Value {
    let label = |name: &String| json!({"name": name, "type": "mask", "attributes": []});
    let spec = Value::Array(labels.iter().map(label).collect());
    let annotations = json!({
        "name": format!("cutout: {} finds {}", entry.source.title, labels.join(", ")),
        "type": "detector",
        "spec": spec.to_string(),
    });
    function_of(name_of(entry), annotations, &entry.source.title, port)
}

/// Every object of the labels, as CVAT's detectors answer.
pub(super) async fn detect(app: &App, model: &str, request: &Request) -> Result<Value, Problem> {
    if app.labels.is_empty() {
        return Err(Problem::Invalid(
            "the server has no labels to look for: start it with --label NAME".to_owned(),
        ));
    }
    let picture = app.picture_in(&request.image, Some(model)).await?;
    let mut find = app.labels.iter().fold(Find::default(), Find::and);
    if let Some(threshold) = request.threshold {
        find = find.threshold(threshold as f32);
    }
    let mut shapes = Vec::new();
    for Found { phrase, objects } in app.find(picture, find).await? {
        for cut in objects {
            let label = phrase.clone().unwrap_or_default();
            shapes.extend(shape(&cut.rle, &label, cut.score)?);
        }
    }
    Ok(Value::Array(shapes))
}

/// An outline, and the pixels of the box with the box behind them; `None` for an empty mask.
fn shape(rle: &Rle, label: &str, score: f32) -> Result<Option<Value>, Problem> {
    let Some(bounds) = rle.bounds() else { return Ok(None) };
    let mask = rle.to_mask()?;
    let rows = bounds.top..=bounds.bottom;
    let mut pixels: Vec<usize> = rows
        .flat_map(|y| (bounds.left..=bounds.right).map(move |x| (x, y)))
        .map(|(x, y)| usize::from(mask.get(x, y)))
        .collect();
    pixels.extend([bounds.left, bounds.top, bounds.right, bounds.bottom]);
    let outlines = outlines(rle, 1.0)?;
    let points: Vec<f64> = largest_outline(&outlines).iter().flatten().copied().collect();
    Ok(Some(json!({
        "label": label,
        "type": "mask",
        "confidence": format!("{score:.3}"),
        "points": points,
        "mask": pixels,
        "attributes": [],
    })))
}

#[cfg(test)]
mod tests {
    use cutout_imaging::{Mask, Size};

    use super::*;

    #[test]
    fn pixels_of_the_box_stand_before_the_box() {
        let pixels = "......##..#.".chars().map(|c| c == '#').collect();
        let rle = Mask::from_pixels(Size::new(4, 3), pixels).unwrap().to_rle().unwrap();
        let shape = shape(&rle, "car", 0.5).unwrap().unwrap();
        assert_eq!(shape["mask"], json!([1, 1, 1, 0, 2, 1, 3, 2]));
        assert_eq!((&shape["confidence"], &shape["label"]), (&json!("0.500"), &json!("car")));
    }
}
