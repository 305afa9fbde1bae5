//! Requests to the server: the JSON of the API and of all dialects, and forms.

use cutout_server::requests::{kinds, read};

use super::Target;

pub(super) const REQUESTS: Target = Target {
    name: "requests",
    about: "requests to the server, in JSON and as forms",
    seeds,
    words: &[
        "null",
        "true",
        "-1",
        "1e999",
        "18446744073709551616",
        "[]",
        "{}",
        "[[",
        "\"",
        "\\ud800",
        "\"points\":",
        "\"box\":",
        "\"rle\":",
        "\"counts\":",
        "\r\n--limit",
        "--\r\n",
        "filename=",
    ],
    read,
    memory: 1 << 20,
};

/// A valid request of each kind.
fn seed(kind: &str) -> &'static str {
    match kind {
        "segment" => {
            r#"{"points": [[1, 2, 1]], "box": [0, 0, 3, 2], "mask_id": "1", "outputs": ["rle", "path"], "simplify": 0.5, "hover": {"client": "a", "sequence": 1}}"#
        }
        "find" => {
            r#"{"phrases": ["a"], "boxes": [[1, 2, 3, 4, 1]], "threshold": 0.5, "overlap": 0.5}"#
        }
        "everything" => r#"{"points_per_side": 4, "pred_iou_thresh": 0.5}"#,
        "export" => {
            r##"{"format": "coco", "file_name": "a.png", "objects": [{"name": "a", "rle": {"size": [3, 4], "counts": "54"}, "colour": "#ff0000", "score": 0.5}]}"##
        }
        "prompt" => {
            r#"{"frame": 1, "object": 2, "points": [[1, 2, 0]], "box": [0, 0, 3, 2], "anew": true}"#
        }
        "track" => {
            r#"{"direction": "both", "start": 1, "max_frames": 3, "phrases": ["a"], "threshold": 0.5}"#
        }
        "clip-export" => r#"{"format": "labels"}"#,
        "cvat" => {
            r#"{"image": "", "pos_points": [[1, 1]], "neg_points": [], "obj_bbox": [[0, 0], [5, 5]], "shapes": [{"type": "mask", "points": [0, 4, 1, 1, 2, 2]}, null, {"type": "polygon", "points": [1, 1, 5, 1, 5, 6]}], "states": ["a:1"]}"#
        }
        "label-studio-setup" => {
            r#"{"project": "7.1", "hostname": "http://a:1", "access_token": "t", "schema": "<View/>"}"#
        }
        "label-studio-predict" => {
            r#"{"tasks": [{"data": {"i": "a"}}], "project": "1", "label_config": "<View><Image name='i' value='$i'/><BrushLabels name='b' toName='i'/></View>", "params": {"context": {"result": [{"type": "keypointlabels", "value": {"x": 5, "y": 5, "keypointlabels": ["A"]}}]}}}"#
        }
        "roboflow-embed" => r#"{"image": {"type": "base64", "value": "AA=="}, "image_id": "a"}"#,
        "roboflow-segment" => {
            r#"{"image": {"type": "base64", "value": "AA=="}, "prompts": {"prompts": [{"points": [{"x": 1, "y": 2, "positive": true}], "box": {"x": 4, "y": 3, "width": 3, "height": 3}}]}, "format": "rle"}"#
        }
        "roboflow-find" => {
            r#"{"image": {"type": "base64", "value": "AA=="}, "prompts": [{"type": "visual", "text": "a", "boxes": [{"x": 1, "y": 1, "width": 2, "height": 2}, {"x0": 1, "y0": 1, "x1": 2, "y1": 2}], "box_labels": [1, 0]}]}"#
        }
        "roboflow-sam1" => {
            r#"{"image_id": "a", "point_coords": [[1, 1], [2, 2]], "point_labels": [2, 3]}"#
        }
        "x-anylabeling" => {
            r#"{"model": "a", "image": "", "params": {"marks": [{"type": "rectangle", "data": [1, 2, 3, 4], "label": 1}], "text_prompt": "a, b", "conf_threshold": 0.5, "iou_threshold": 0.5}}"#
        }
        "x-anylabeling-init" => {
            r#"{"model": "a", "frames": ["data:image/png;base64,AA=="], "start_frame_index": 0}"#
        }
        "x-anylabeling-prompt" => {
            r#"{"session_id": "a", "frame_index": 0, "points": [[0.5, 0.5]], "point_labels": [1], "params": {"conf_threshold": 0.5}}"#
        }
        "x-anylabeling-track" => r#"{"session_id": "a", "start_frame": 0, "end_frame": 5}"#,
        "form" => {
            "--limit\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\nbytes\r\n--limit\r\n\r\n\r\nfield\r\n--limit--\r\n"
        }
        _ => "",
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let with_kind = |(number, kind): (usize, &'static str)| {
        [&[number as u8][..], seed(kind).as_bytes()].concat()
    };
    kinds().into_iter().enumerate().map(with_kind).collect()
}
