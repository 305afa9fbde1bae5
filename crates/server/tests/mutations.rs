//! Thousands of damaged requests: every one is answered, and none makes the server fail.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{Image, Size, encode_image};
use serde_json::json;

use crate::support::Running;

/// Requests of each kind.
const EACH: u64 = 60;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

/// A request with some bytes changed, left out, repeated or exchanged for what parsers find hard.
fn damaged(text: &str, numbers: &mut Numbers) -> Vec<u8> {
    const HARD: [&str; 12] = [
        "null", "-1", "1e999", "[]", "{}", "\"\"", "\"", "1e308", "\\ud800", "[[[[", "NaN", "-0.0",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + numbers.next(3) {
        let place = numbers.next(bytes.len());
        match numbers.next(4) {
            0 => bytes[place] = numbers.next(256) as u8,
            1 => drop(bytes.drain(place..(place + 1 + numbers.next(8)).min(bytes.len()))),
            2 => {
                let hard = HARD[numbers.next(HARD.len())];
                let end = (place + numbers.next(4)).min(bytes.len());
                drop(bytes.splice(place..end, hard.bytes()));
            }
            _ => bytes.truncate(place),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn damaged_requests_are_answered() {
    let server = Running::start();
    let id = server.add_still_life();
    let small = encode_image(&Image::filled(Size::new(9, 7), [200, 30, 60]).unwrap()).unwrap();
    let small = STANDARD.encode(small);
    let rle = json!({"size": [480, 640], "counts": "0`_2"});
    let config =
        "<View><Image name=\"i\" value=\"$i\"/><BrushLabels name=\"b\" toName=\"i\"/></View>";
    let point =
        json!({"type": "keypointlabels", "value": {"x": 5, "y": 5, "keypointlabels": ["A"]}});
    let of_picture = |what: &str| format!("/api/v1/images/{id}/{what}");
    let requests = [
        (
            of_picture("segment"),
            json!({"points": [[20, 28, 1]], "box": [1, 2, 30, 40], "outputs": ["path"], "simplify": 0.5}),
        ),
        (
            of_picture("find"),
            json!({"phrases": ["a"], "boxes": [[1, 2, 3, 4, 1]], "threshold": 0.5}),
        ),
        (
            of_picture("export"),
            json!({"format": "coco", "objects": [{"name": "a", "rle": rle, "colour": "#ff0000"}]}),
        ),
        (
            "/v1/predict".to_owned(),
            json!({"model": "built-in", "image": small, "params": {"marks": [{"type": "point", "data": [2, 3], "label": 1}]}}),
        ),
        (
            "/sam2/segment_image".to_owned(),
            json!({"image": {"type": "base64", "value": small}, "prompts": [{"box": {"x": 4, "y": 3, "width": 3, "height": 3}}], "format": "rle"}),
        ),
        (
            "/".to_owned(),
            json!({"image": small, "pos_points": [[1, 1]], "neg_points": [], "obj_bbox": [[0, 0], [5, 5]]}),
        ),
        (
            "/predict".to_owned(),
            json!({"tasks": [{"data": {"i": format!("data:image/png;base64,{small}")}}], "label_config": config, "params": {"context": {"result": [point]}}}),
        ),
        (
            "/setup".to_owned(),
            json!({"project": "7.1", "hostname": "http://a:1", "access_token": "t"}),
        ),
    ];
    let mut numbers = Numbers(7);
    let mut answered = 0;
    for (path, body) in &requests {
        assert!([200, 400].contains(&server.post(path, body).status), "{path} {body}");
        for _ in 0..EACH {
            let body = damaged(&body.to_string(), &mut numbers);
            let answer = server.send("POST", path, &["content-type: application/json"], &body);
            let text = String::from_utf8_lossy(&body);
            assert!(
                [200, 400, 403, 404].contains(&answer.status),
                "{path} {text}: {}",
                answer.head
            );
            answered += 1;
        }
    }
    assert_eq!(answered, EACH * requests.len() as u64);
    assert_eq!(server.get("/health").status, 200);
}
