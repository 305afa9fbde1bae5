//! Roboflow's SAM 1 route: points and corners of a box by label, as Meta's ONNX model takes them.

use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Picture, picture_of, rings};
use crate::dialects::{Asked, rect_between};
use crate::problem::Problem;
use crate::server::{App, parse};

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    image: Option<Picture>,
    #[serde(default)]
    image_id: Option<String>,
    #[serde(default)]
    point_coords: Vec<[f64; 2]>,
    #[serde(default)]
    point_labels: Vec<f64>,
    #[serde(default)]
    format: Option<String>,
}

/// `POST /sam/segment_image`: the polygons of one mask.
pub(crate) async fn segment(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let start = Instant::now();
    let request: Request = parse(&body)?;
    if request.format.as_deref().unwrap_or("json") != "json" {
        return Err(Problem::Invalid("masks of SAM 1 are answered as json".to_owned()));
    }
    let asked = asked(&request.point_coords, &request.point_labels)?;
    let picture = picture_of(&app, request.image.as_ref(), request.image_id.as_deref()).await?;
    let mut masks = Vec::new();
    for cut in app.cut(picture, &[asked]).await? {
        masks.extend(rings(&cut.rle)?);
    }
    Ok(Json(json!({"masks": masks, "time": start.elapsed().as_secs_f64()})))
}

/// Whether bytes are a request.
pub(super) fn is_request(body: &[u8]) -> bool {
    let asks = |request: Request| asked(&request.point_coords, &request.point_labels).is_ok();
    parse(body).is_ok_and(asks)
}

/// Labels 1 and 0 are points on and off the object, 2 and 3 corners of a box, -1 is padding.
fn asked(points: &[[f64; 2]], labels: &[f64]) -> Result<Asked, Problem> {
    if points.len() != labels.len() {
        let (points, labels) = (points.len(), labels.len());
        return Err(Problem::Invalid(format!("{points} point_coords with {labels} point_labels")));
    }
    let mut asked = Asked::default();
    let mut corners = Vec::new();
    for (point, label) in points.iter().zip(labels) {
        match *label {
            1.0 => asked.add(*point, true),
            0.0 => asked.add(*point, false),
            2.0 | 3.0 => corners.push(*point),
            -1.0 => {}
            other => return Err(Problem::Invalid(format!("a point has the label {other}"))),
        }
    }
    asked.rect = match corners[..] {
        [] => None,
        [one, other] => Some(rect_between(one, other)),
        _ => return Err(Problem::Invalid("a box has two corners, labels 2 and 3".to_owned())),
    };
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_what_a_point_is() {
        let points = [[1.0, 2.0], [9.0, 8.0], [3.0, 4.0], [0.0, 0.0]];
        let found = asked(&points, &[3.0, 2.0, 0.0, -1.0]).unwrap();
        assert_eq!(found.points.len(), 1);
        let rect = found.rect.unwrap();
        assert_eq!([rect.x0, rect.y0, rect.x1, rect.y1], [1.0, 2.0, 9.0, 8.0]);
        assert!(asked(&points, &[1.0]).is_err());
        assert!(asked(&points[..1], &[5.0]).is_err());
        assert!(asked(&points[..1], &[2.0]).is_err());
    }
}
