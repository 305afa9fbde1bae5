//! Requests as annotation tools send them, and answers as they read them.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{DecodeLimits, Mask, Polygon, Rle, Size, decode, fill_polygons};
use cutout_sam::{Prompt, Sam, Scene};
use serde_json::{Value, json};

use crate::support::{Running, STILL_LIFE};

const SIZE: Size = Size { width: 640, height: 480 };

fn base64() -> String {
    STANDARD.encode(STILL_LIFE)
}

/// The masks that the library gives for a click and for a box.
fn expected() -> (Mask, Mask) {
    let image = decode(STILL_LIFE, "", &DecodeLimits::default()).unwrap();
    let scene: Scene = Sam::builtin().unwrap().embed(&image).unwrap();
    let mask = |prompt: &Prompt| scene.segment(prompt).unwrap().best().mask().unwrap();
    (mask(&Prompt::point(200, 280)), mask(&Prompt::rect(390, 190, 580, 350)))
}

fn iou(one: &Mask, other: &Mask) -> f64 {
    one.to_rle().unwrap().iou(&other.to_rle().unwrap()).unwrap()
}

fn filled(rings: &Value) -> Mask {
    let rings: Vec<Vec<[f64; 2]>> = serde_json::from_value(rings.clone()).unwrap();
    let polygons: Vec<Polygon> =
        rings.into_iter().map(|outer| Polygon { outer, holes: Vec::new() }).collect();
    fill_polygons(SIZE, &polygons).unwrap()
}

#[test]
fn x_anylabeling_clicks_and_boxes() {
    let server = Running::start();
    let models = server.get("/v1/models").json(200);
    let widgets = models["data"]["built-in"]["widgets"].as_array().unwrap();
    assert!(widgets.iter().any(|widget| widget["name"] == "button_add_point"));
    let predict = |marks: Value| {
        let params = json!({
            "conf_threshold": 0.0, "iou_threshold": 0.0, "epsilon_factor": 0.001, "marks": marks,
        });
        let image = format!("data:image/jpeg;base64,{}", base64());
        let body = json!({"model": "built-in", "image": image, "params": params});
        server.post("/v1/predict", &body).json(200)["data"].clone()
    };
    let (clicked, boxed) = expected();
    let answer = predict(json!([{"type": "point", "data": [200, 280], "label": 1}]));
    assert_eq!(answer["replace"], false);
    let shape = &answer["shapes"][0];
    assert_eq!(
        (&shape["label"], &shape["shape_type"]),
        (&json!("AUTOLABEL_OBJECT"), &json!("polygon"))
    );
    let points = shape["points"].as_array().unwrap();
    assert_eq!(points.first(), points.last(), "the outline is closed");
    // Only the outer outline is sent, without the hole of the handle.
    assert!(iou(&filled(&json!([points])), &clicked) > 0.9);
    let rectangles = json!([
        {"type": "rectangle", "data": [580, 350, 390, 190], "label": 1},
        {"type": "rectangle", "data": [100, 150, 320, 420], "label": 1},
    ]);
    let answer = predict(rectangles);
    assert_eq!(answer["shapes"].as_array().unwrap().len(), 2, "each rectangle is an object");
    assert!(iou(&filled(&json!([answer["shapes"][0]["points"]])), &boxed) > 0.95);
    assert_eq!(predict(json!([]))["shapes"], json!([]));
    let wrong = json!({"model": "x", "image": base64(), "params": {}});
    assert_eq!(server.post("/v1/predict", &wrong).status, 404, "errors are statuses");
}

#[test]
fn roboflow_segments_and_takes_its_key_from_the_body() {
    let server = Running::start_with(|options| options.token = Some("correct-horse".to_owned()));
    let (clicked, boxed) = expected();
    let image = json!({"type": "base64", "value": base64()});
    let prompts = json!({"prompts": [
        {"points": [{"x": 200, "y": 280, "positive": true}]},
        // The box by its centre.
        {"box": {"x": 485, "y": 270, "width": 190, "height": 160}},
    ]});
    let ask = |format: &str, key: &str| {
        let body = json!({
            "api_key": key, "image": image, "prompts": prompts, "format": format,
            "multimask_output": true, "sam2_version_id": "hiera_tiny",
        });
        server.post("/sam2/segment_image", &body)
    };
    assert_eq!(ask("rle", "wrong").status, 401);
    let answer = ask("rle", "correct-horse").json(200);
    let masks: Vec<Mask> = answer["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|prediction| {
            assert_eq!(prediction["format"], "rle");
            let counts = prediction["masks"]["counts"].as_str().unwrap();
            Rle::from_coco_string(SIZE, counts).unwrap().to_mask().unwrap()
        })
        .collect();
    assert_eq!(masks, [clicked.clone(), boxed]);
    let answer = ask("json", "correct-horse").json(200);
    assert_eq!(answer["predictions"][0]["format"], "polygon");
    assert!(iou(&filled(&answer["predictions"][0]["masks"]), &clicked) > 0.9);
    let body = json!({"api_key": "correct-horse", "image": image, "image_id": "mine"});
    assert_eq!(server.post("/sam2/embed_image", &body).json(200)["image_id"], "mine");
    let body = json!({"api_key": "correct-horse", "image": image, "prompts": [{"type": "text", "text": "mug"}]});
    let refused = server.post("/sam3/concept_segment", &body).error(400);
    assert!(refused.contains("SAM 3"), "{refused}");
    let url =
        json!({"api_key": "correct-horse", "image": {"type": "url", "value": "http://127.0.0.1/"}});
    assert!(server.post("/sam2/embed_image", &url).error(400).contains("base64"));
}

#[test]
fn cvat_finds_functions_and_reads_their_masks() {
    let server = Running::start();
    let functions = server.get("/api/functions").json(200);
    let function = server.get("/api/functions/cutout-built-in").json(200);
    assert_eq!(functions["cutout-built-in"], function);
    assert_eq!(function["metadata"]["annotations"]["type"], "interactor");
    assert_eq!(function["status"]["httpPort"], server.address.port());
    let annotations = function["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.values().all(Value::is_string));
    let (clicked, boxed) = expected();
    let click =
        json!({"image": base64(), "pos_points": [[200, 280]], "neg_points": [], "obj_bbox": []});
    let rect = json!({"image": base64(), "pos_points": [], "neg_points": [], "obj_bbox": [[390, 190], [580, 350]]});
    let named = ["x-nuclio-function-name: cutout-built-in", "content-type: application/json"];
    let direct = server.post("/", &click).json(200);
    let called =
        server.send("POST", "/api/function_invocations", &named, rect.to_string().as_bytes());
    for (answer, expected) in [(direct, clicked), (called.json(200), boxed)] {
        let shape = &answer["shapes"][0];
        assert_eq!(shape["type"], "mask");
        let points: Vec<usize> = serde_json::from_value(shape["points"].clone()).unwrap();
        assert_eq!(decoded(&points), expected);
    }
}

/// A mask of CVAT: runs along the rows of a box, which follows them.
fn decoded(points: &[usize]) -> Mask {
    let (runs, place) = points.split_at(points.len() - 4);
    let (left, top, right) = (place[0], place[1], place[2]);
    let width = right - left + 1;
    let mut pixels = vec![false; SIZE.width * SIZE.height];
    let mut position = 0;
    for (index, run) in runs.iter().enumerate() {
        for offset in position..position + run {
            pixels[(top + offset / width) * SIZE.width + left + offset % width] = index % 2 == 1;
        }
        position += run;
    }
    Mask::from_pixels(SIZE, pixels).unwrap()
}

/// A labelling configuration with this control.
fn config(control: &str) -> String {
    format!(
        "<View><Image name=\"image\" value=\"$image\"/><KeyPointLabels name=\"kp\" toName=\"image\" smart=\"true\">\
         <Label value=\"Mug\"/></KeyPointLabels><{control} name=\"tag\" toName=\"image\"><Label value=\"Mug\"/></{control}></View>"
    )
}

#[test]
fn label_studio_gets_its_pictures_and_its_regions() {
    let fetched: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let log = Arc::clone(&fetched);
    let server = Running::start_with(|options| {
        options.fetch = Some(Arc::new(move |url: &str, authorization: &str, _: usize| {
            log.lock().unwrap().push((url.to_owned(), authorization.to_owned()));
            Ok(STILL_LIFE.to_vec())
        }));
    });
    let predict = |control: &str, image: &str, context: Value| {
        let body = json!({
            "tasks": [{"id": 3, "data": {"image": image}}], "project": "7.1700000000",
            "label_config": config(control), "params": {"login": null, "context": context},
        });
        server.post("/predict", &body)
    };
    let point = json!({
        "type": "keypointlabels", "original_width": 640, "original_height": 480, "is_positive": true,
        "value": {"x": 31.25, "y": 58.333_333_333_333_336, "width": 0.3, "keypointlabels": ["Mug"]},
    });
    let context = json!({"result": [point]});
    let early = predict("BrushLabels", "/data/upload/7/x.jpg", context.clone()).error(400);
    assert!(early.contains("set up"), "{early}");
    let setup = json!({
        "project": "7.1600000000", "schema": config("BrushLabels"), "hostname": "http://studio.example:8080",
        "access_token": "abc", "extra_params": null,
    });
    assert!(server.post("/setup", &setup).json(200)["model_version"].is_string());
    let (clicked, _) = expected();
    let brush = predict("BrushLabels", "/data/upload/7/x.jpg", context.clone()).json(200);
    let region = &brush["results"][0]["result"][0];
    assert_eq!(
        (&region["from_name"], &region["to_name"], &region["type"]),
        (&json!("tag"), &json!("image"), &json!("brushlabels"))
    );
    assert_eq!(region["value"]["brushlabels"], json!(["Mug"]));
    assert_eq!(region["value"]["format"], "rle");
    let bitmask =
        predict("BitmaskLabels", "http://studio.example:8080/data/upload/7/x.jpg", context.clone())
            .json(200);
    let url =
        bitmask["results"][0]["result"][0]["value"]["imageDataURL"].as_str().unwrap().to_owned();
    let png = STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
    let png = decode(&png, "", &DecodeLimits::default()).unwrap();
    let pixels = png.as_rgb().chunks(3).map(|pixel| pixel[0] == 255).collect();
    assert_eq!(Mask::from_pixels(SIZE, pixels).unwrap(), clicked);
    let polygon = predict("PolygonLabels", "/data/upload/7/x.jpg", context.clone()).json(200);
    let points = &polygon["results"][0]["result"][0]["value"]["points"];
    let points: Vec<[f64; 2]> = serde_json::from_value(points.clone()).unwrap();
    let pixels: Vec<[f64; 2]> = points.iter().map(|[x, y]| [x * 6.4, y * 4.8]).collect();
    assert!(iou(&filled(&json!([pixels])), &clicked) > 0.9);
    // One address is fetched once, with the token of the set-up; other hosts never.
    let expected =
        ("http://studio.example:8080/data/upload/7/x.jpg".to_owned(), "Token abc".to_owned());
    assert_eq!(*fetched.lock().unwrap(), [expected]);
    for other in [
        "http://169.254.169.254/latest",
        "http://studio.example:8080@evil.example/",
        "file:///etc/passwd",
    ] {
        assert_eq!(predict("BrushLabels", other, context.clone()).status, 403, "{other}");
    }
    assert_eq!(fetched.lock().unwrap().len(), 1);
    for wrong in ["file:///", "http://a@b", "http://a/b", "studio"] {
        let setup = json!({"project": "7", "hostname": wrong, "access_token": "abc"});
        assert_eq!(server.post("/setup", &setup).status, 400, "{wrong}");
    }
    // A batch has no clicks: as many empty results as tasks.
    let batch = json!({"tasks": [{"id": 1, "data": {}}, {"id": 2, "data": {}}], "label_config": config("BrushLabels")});
    let results = server.post("/predict", &batch).json(200)["results"].clone();
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert_eq!(results[0]["result"], json!([]));
    assert_eq!(server.post("/webhook", &json!({})).status, 200);
}
