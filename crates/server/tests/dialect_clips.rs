//! Clips in the requests of annotation tools.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{Image, Mask, Rle, Size, encode_image};
use cutout_sam::{Prompt, Sam, TrackOptions};
use serde_json::{Value, json};

use crate::support::clips::{Event, Events, ball_frames};
use crate::support::{Running, STILL_LIFE};

const SIZE: Size = Size::new(320, 240);

fn frames(count: usize) -> Vec<Image> {
    let mut frames = ball_frames();
    frames.truncate(count);
    frames
}

fn base64(image: &Image) -> String {
    STANDARD.encode(encode_image(image).unwrap())
}

/// The masks that the library tracks from a click, or a box, on the first frame.
fn tracked(frames: &[Image], prompt: &Prompt) -> Vec<Rle> {
    let options = TrackOptions { length: None, ..TrackOptions::default() };
    let mut tracker = Sam::builtin().unwrap().track(options).unwrap();
    tracker.visit(0, &frames[0]).unwrap();
    let mut masks = vec![tracker.prompt(0, 1, prompt).unwrap().segment.rle().unwrap()];
    for frame in &frames[1..] {
        masks.push(tracker.push(frame).unwrap().objects[0].segment.rle().unwrap());
    }
    masks
}

/// Share of a mask that an outline covers.
fn overlap(points: &Value, mask: &Rle) -> f64 {
    let outer: Vec<[f64; 2]> = serde_json::from_value(points.clone()).unwrap();
    let polygon = cutout_imaging::Polygon { outer, holes: Vec::new() };
    let filled = cutout_imaging::fill_polygons(SIZE, &[polygon]).unwrap().to_rle().unwrap();
    filled.iou(mask).unwrap()
}

#[test]
fn x_anylabeling_tracks_a_folder_of_frames() {
    let server = Running::start();
    let models = server.get("/v1/models").json(200);
    assert_eq!(models["data"]["built-in-video"]["batch_processing_mode"], "video");
    let frames = frames(5);
    let uris: Vec<String> =
        frames.iter().map(|frame| format!("data:image/png;base64,{}", base64(frame))).collect();
    let body = json!({"model": "built-in-video", "frames": uris, "start_frame_index": 0});
    let started = server.post("/v1/video/init", &body).json(200);
    assert_eq!(started["data"]["num_frames"], 5);
    let session = started["data"]["session_id"].clone();
    // The tool sends shares of width and height, and one number for every object.
    let prompt = json!({"session_id": session, "model": "built-in-video", "frame_index": 0,
        "points": [[62.0 / 320.0, 150.0 / 240.0]], "point_labels": [1], "obj_id": 10000,
        "params": {"conf_threshold": 0.0, "epsilon_factor": 0.001}});
    let answer = server.post("/v1/video/prompt", &prompt).json(200);
    assert_eq!(answer["data"]["num_objects"], 1);
    let wanted = tracked(&frames, &Prompt::point(62, 150));
    let shape = &answer["data"]["masks"][0];
    assert_eq!(
        (&shape["shape_type"], &shape["label"]),
        (&json!("polygon"), &json!("AUTOLABEL_OBJECT"))
    );
    assert!(overlap(&shape["points"], &wanted[0]) > 0.9);
    let run = json!({"session_id": session, "model": "built-in-video", "start_frame": 0});
    let events: Vec<Event> = Events::ask(&server, "/v1/video/propagate/stream", &run).collect();
    // The tool reads the kind inside the data.
    assert!(events.iter().all(|event| event.name.is_empty()));
    let kinds: Vec<&str> =
        events.iter().map(|event| event.data["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["started", "progress", "progress", "progress", "progress", "progress", "completed"]
    );
    assert_eq!(events[0].data["total_frames"], 5);
    assert_eq!(events[3].data["current_frame"], 2);
    let results = &events[6].data["results"];
    for (frame, mask) in wanted.iter().enumerate() {
        let shape = &results[frame.to_string()]["masks"][0];
        assert!(overlap(&shape["points"], mask) > 0.9, "frame {frame}");
        assert_eq!(shape["group_id"], 1);
    }
    let text = json!({"session_id": session, "frame_index": 0, "text_prompt": "ball."});
    assert!(server.post("/v1/video/prompt", &text).error(400).contains("SAM 3"));
    let none = json!({"session_id": session, "frame_index": 0, "points": [[0.5, 0.5]], "point_labels": []});
    assert!(server.post("/v1/video/prompt", &none).error(400).contains("labels"));
    let id = session.as_str().unwrap();
    let gone = server.post(&format!("/v1/video/cleanup/{id}?model=built-in-video"), &json!({}));
    assert_eq!(gone.status, 200);
    assert_eq!(server.post("/v1/video/prompt", &prompt).status, 404);
    let none = json!({"model": "built-in-video", "frames": []});
    assert!(server.post("/v1/video/init", &none).error(400).contains("no frames"));
}

/// The mask of CVAT's runs with their box.
fn runs_to_mask(points: &Value) -> Rle {
    let numbers: Vec<usize> = serde_json::from_value(points.clone()).unwrap();
    let (runs, [left, top, right, _]) = numbers.split_last_chunk::<4>().unwrap();
    let mut pixels = vec![false; SIZE.width * SIZE.height];
    let (width, mut at) = (right - left + 1, 0);
    for (index, run) in runs.iter().enumerate() {
        for pixel in at..at + run {
            pixels[(top + pixel / width) * SIZE.width + left + pixel % width] = index % 2 == 1;
        }
        at += run;
    }
    Mask::from_pixels(SIZE, pixels).unwrap().to_rle().unwrap()
}

#[test]
fn cvat_tracks_shapes_frame_by_frame() {
    let server = Running::start();
    let functions = server.get("/api/functions").json(200);
    let tracker = &functions["cutout-built-in-tracker"]["metadata"]["annotations"];
    assert_eq!(tracker["type"], "tracker");
    assert_eq!(tracker["supported_shape_types"], "mask,polygon,rectangle");
    let frames = frames(3);
    let rect = json!([30, 120, 95, 185]);
    let wanted = tracked(&frames, &Prompt::rect(30, 120, 95, 185));
    let call = |body: Value| {
        let headers = ["x-nuclio-function-name: cutout-built-in-tracker"];
        server.send("POST", "/api/function_invocations", &headers, body.to_string().as_bytes())
    };
    // A mask is started with the mask itself, so that it is what the model is told.
    let drawn = wanted[0].clone();
    let shapes = json!([{"type": "rectangle", "points": rect}]);
    let first =
        call(json!({"image": base64(&frames[0]), "shapes": shapes, "states": []})).json(200);
    let bounds = drawn.bounds().unwrap();
    let found = &first["shapes"][0];
    assert_eq!(found["type"], "rectangle");
    assert_eq!(
        found["points"],
        json!([bounds.left, bounds.top, bounds.right + 1, bounds.bottom + 1])
    );
    let mut states = first["states"].clone();
    for (frame, mask) in frames.iter().zip(&wanted).skip(1) {
        let body = json!({"image": base64(frame), "shapes": [null], "states": states});
        let next = call(body).json(200);
        let bounds = mask.bounds().unwrap();
        assert_eq!(
            next["shapes"][0]["points"],
            json!([bounds.left, bounds.top, bounds.right + 1, bounds.bottom + 1])
        );
        states = next["states"].clone();
    }
    // The same as a mask and as a polygon, without a name: states tell it apart.
    let corners = json!([35, 125, 90, 125, 90, 180, 35, 180]);
    let box_runs = json!([0, 56 * 56, 35, 125, 90, 180]);
    let shapes =
        json!([{"type": "mask", "points": box_runs}, {"type": "polygon", "points": corners}]);
    let both = server
        .post("/", &json!({"image": base64(&frames[0]), "shapes": shapes, "states": []}))
        .json(200);
    assert_eq!(both["states"].as_array().unwrap().len(), 2);
    let body = json!({"image": base64(&frames[1]), "shapes": [], "states": [both["states"][0]]});
    let next = server.post("/", &body).json(200);
    let found = runs_to_mask(&next["shapes"][0]["points"]);
    assert!(found.iou(&wanted[1]).unwrap() > 0.6, "{}", found.iou(&wanted[1]).unwrap());
    let wrong = |body: Value| call(body);
    let image = base64(&frames[0]);
    let unknown = json!({"image": image, "states": ["00:1"]});
    assert!(wrong(unknown).error(404).contains("track again"));
    assert!(wrong(json!({"image": image, "states": ["x"]})).error(400).contains("state"));
    assert!(wrong(json!({"image": image, "states": []})).error(400).contains("0 shapes"));
    let other = STANDARD.encode(STILL_LIFE);
    assert!(wrong(json!({"image": other, "states": states})).error(400).contains("640×480"));
    let outside = json!([{"type": "mask", "points": [0, 4, 319, 239, 320, 240]}]);
    let outside = json!({"image": image, "shapes": outside, "states": []});
    assert!(wrong(outside).error(400).contains("inside the picture"));
    // Without labels there is no detector.
    assert!(server.post("/", &json!({"image": image})).error(400).contains("SAM 3"));
}

#[test]
fn roboflow_segments_with_sam_1_and_by_name() {
    let server = Running::start();
    let image = json!({"type": "base64", "value": STANDARD.encode(STILL_LIFE)});
    let embedded = json!({"image": image, "image_id": "mine"});
    assert_eq!(server.post("/sam/embed_image", &embedded).json(200)["image_id"], "mine");
    let click =
        json!({"image": image, "prompts": [{"points": [{"x": 200, "y": 280, "positive": true}]}]});
    let wanted = server.post("/sam2/segment_image", &click).json(200);
    let wanted = &wanted["predictions"][0]["masks"];
    let named = json!({"image_id": "mine", "prompts": click["prompts"]});
    assert_eq!(
        &server.post("/sam2/segment_image", &named).json(200)["predictions"][0]["masks"],
        wanted
    );
    let points =
        json!({"image_id": "mine", "point_coords": [[200, 280], [0, 0]], "point_labels": [1, -1]});
    assert_eq!(&server.post("/sam/segment_image", &points).json(200)["masks"], wanted);
    let corners =
        json!({"image": image, "point_coords": [[390, 190], [580, 350]], "point_labels": [2, 3]});
    let boxed = server.post("/sam/segment_image", &corners).json(200);
    let same = json!({"image": image, "prompts": [{"box": {"x": 485, "y": 270, "width": 190, "height": 160}}]});
    let same = server.post("/sam3/visual_segment", &same).json(200);
    assert_eq!(boxed["masks"], same["predictions"][0]["masks"]);
    let refused = |path: &str, body: Value| server.post(path, &body);
    assert!(
        refused("/sam/segment_image", json!({"image_id": "other"})).error(404).contains("send it")
    );
    assert!(refused("/sam/segment_image", json!({})).error(400).contains("neither"));
    let lengths = json!({"image_id": "mine", "point_coords": [[1, 1]], "point_labels": []});
    assert!(refused("/sam/segment_image", lengths).error(400).contains("point_labels"));
}
