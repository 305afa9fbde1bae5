//! A small random SAM 3 over HTTP: phrases in pictures and clips, by the API and by the tools' requests.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{Image, Rle, Size, encode_image};
use cutout_sam::{Find, Found, PhraseOptions, Sam};
use cutout_server::ModelSource;
use cutout_tensor::Tensor;
use cutout_testing::SmallSam3;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};
use serde_json::{Value, json};

use crate::support::Running;
use crate::support::clips::{Event, Events, zipped};

const SIZE: Size = Size::new(40, 30);
/// Least score with which random weights find something.
const THRESHOLD: f64 = 1e-6;

/// The model in a file.
fn model() -> Sam {
    static MODEL: OnceLock<Sam> = OnceLock::new();
    MODEL.get_or_init(|| written("doubtful", |_, tensor| tensor)).clone()
}

/// The model with larger scores, so that it finds objects without a threshold of its own, as the page asks.
fn sure_model() -> Sam {
    static MODEL: OnceLock<Sam> = OnceLock::new();
    let change = |name: &str, tensor: Tensor| {
        let more = match name {
            "detector.transformer.decoder.presence_token_head.layers.2.bias" => 6.0,
            "detector.dot_prod_scoring.hs_proj.bias"
            | "detector.dot_prod_scoring.prompt_proj.bias" => 1.5,
            _ => return tensor,
        };
        let values = tensor.to_vec::<f32>().unwrap();
        let values = values.iter().map(|value| value + more).collect();
        Tensor::from_vec(tensor.shape().to_vec(), values).unwrap()
    };
    MODEL.get_or_init(|| written("sure", change)).clone()
}

/// The small model from a file, with weights changed.
fn written(name: &str, change: impl Fn(&str, Tensor) -> Tensor) -> Sam {
    let path =
        std::env::temp_dir().join(format!("cutout-http-{name}-{}.safetensors", std::process::id()));
    let weights = SmallSam3::load().unwrap().weights_with_memory().unwrap();
    let weights = weights.into_iter().map(|(name, tensor)| {
        let tensor = change(&name, tensor);
        (name, tensor)
    });
    let tensors: Vec<OutgoingTensor> =
        weights.map(|(name, tensor)| OutgoingTensor::new(name, tensor)).collect();
    write_safetensors(&path, &tensors, &Metadata::default()).unwrap();
    let sam = Sam::open(&path).unwrap();
    // The weights are mapped; the name is not needed any more.
    std::fs::remove_file(&path).unwrap();
    sam
}

fn source(id: &str, title: &str, open: fn() -> Sam) -> ModelSource {
    ModelSource {
        id: id.to_owned(),
        title: title.to_owned(),
        finds: true,
        answers_clicks: true,
        tracks: true,
        open: Box::new(move || Ok(open())),
        opened: None,
    }
}

fn server(labels: &[&str]) -> Running {
    Running::start_with(|options| {
        options.labels = labels.iter().map(|label| (*label).to_owned()).collect();
        options.models.push(source("sam3", "Small SAM 3", model));
    })
}

/// A server for the page: the built-in model, one that finds what is asked for, and one that does not.
pub(crate) fn server_for_page() -> Running {
    Running::start_with(|options| {
        options.models.push(source("sure", "Small SAM 3", sure_model));
        options.models.push(source("doubtful", "Small SAM 3 that doubts", model));
    })
}

pub(crate) fn picture(shift: usize) -> Image {
    let pixel = |i: usize| {
        let i = i + shift;
        [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8]
    };
    Image::from_rgb(SIZE, (0..SIZE.width * SIZE.height).flat_map(pixel).collect()).unwrap()
}

pub(crate) fn png() -> Vec<u8> {
    encode_image(&picture(0)).unwrap()
}

fn rle(value: &Value) -> Rle {
    Rle::from_coco_string(SIZE, value["counts"].as_str().unwrap()).unwrap()
}

fn expected(find: Find) -> Found {
    model().embed(&picture(0)).unwrap().find(find.threshold(THRESHOLD as f32)).unwrap()
}

fn expected_masks(find: Find) -> Vec<Rle> {
    let masks: Vec<Rle> = expected(find).iter().map(|found| found.rle().unwrap()).collect();
    assert!(!masks.is_empty(), "the model finds something");
    masks
}

#[test]
fn phrases_over_http_find_what_the_library_finds() {
    let server = server(&[]);
    let models = server.get("/api/v1/models").json(200);
    assert_eq!(models["models"][1]["finds"], true);
    let added = server.send("POST", "/api/v1/images?model=sam3", &[], &png()).json(200);
    let path = format!("/api/v1/images/{}/find", added["image_id"].as_str().unwrap());
    let body = json!({"phrases": ["cat", "yellow school bus"], "boxes": [[5, 5, 20, 20, 1]], "threshold": THRESHOLD});
    let answer = server.post(&path, &body).json(200);
    let rect = cutout_sam::Rect { x0: 5.0, y0: 5.0, x1: 20.0, y1: 20.0 };
    let query = Find::phrase("cat").and("yellow school bus");
    let wanted = expected(query.with_rect(rect, cutout_sam::Label::Positive));
    let phrases = answer["phrases"].as_array().unwrap();
    assert_eq!(phrases.len(), 2);
    for (found, wanted) in phrases.iter().zip(wanted.phrases()) {
        assert_eq!(found["phrase"].as_str(), wanted.phrase());
        let masks = found["masks"].as_array().unwrap();
        assert_eq!(masks.len(), wanted.iter().count());
        for (mask, object) in masks.iter().zip(wanted.iter()) {
            assert_eq!(rle(&mask["rle"]), object.rle().unwrap());
            assert!((mask["score"].as_f64().unwrap() - f64::from(object.score())).abs() < 1e-6);
        }
    }
    let error = |body: Value| server.post(&path, &body).error(400);
    assert!(error(json!({"phrases": [""]})).contains("phrase"));
    assert!(error(json!({})).contains("phrase"));
    assert!(error(json!({"phrases": ["cat"], "threshold": 2})).contains("between 0 and 1"));
    assert!(error(json!({"phrases": vec!["cat"; 300]})).contains("at most 256"));
}

#[test]
fn tools_find_phrases() {
    let server = server(&["cat", "yellow school bus"]);
    let image = STANDARD.encode(png());
    let wanted = expected_masks(Find::phrase("cat"));
    // Roboflow.
    let body = json!({"image": {"type": "base64", "value": image}, "format": "rle", "output_prob_thresh": THRESHOLD,
        "prompts": [{"type": "text", "text": "cat"}, {"type": "visual", "boxes": [{"x": 5, "y": 5, "width": 15, "height": 15}], "box_labels": [1]}]});
    let answer = server.post("/sam3/concept_segment", &body).json(200);
    let found = answer["prompt_results"][0]["predictions"].as_array().unwrap();
    let masks: Vec<Rle> = found.iter().map(|found| rle(&found["masks"])).collect();
    assert_eq!(masks, wanted);
    assert_eq!(answer["prompt_results"][1]["echo"]["num_boxes"], 1);
    // X-AnyLabeling.
    let body = json!({"model": "sam3", "image": format!("data:image/png;base64,{image}"),
        "params": {"text_prompt": "cat", "conf_threshold": THRESHOLD, "iou_threshold": 0}});
    let answer = server.post("/v1/predict", &body).json(200);
    let shapes = answer["data"]["shapes"].as_array().unwrap();
    let visible = wanted.iter().filter(|mask| mask.area() > 0).count();
    assert_eq!(shapes.len(), visible);
    assert!(shapes.iter().all(|shape| shape["label"] == "cat"));
    // CVAT's interactor with text, and its detector, whose labels the server has.
    let body = json!({"image": image, "text_prompts": ["cat"], "threshold": THRESHOLD});
    let answer = server.post("/", &body).json(200);
    assert_eq!(answer["shapes"].as_array().unwrap().len(), visible);
    let functions = server.get("/api/functions").json(200);
    let detector = &functions["cutout-sam3-labels"]["metadata"]["annotations"];
    assert_eq!(detector["type"], "detector");
    let spec: Value = serde_json::from_str(detector["spec"].as_str().unwrap()).unwrap();
    assert_eq!(spec[1]["name"], "yellow school bus");
    assert!(functions.get("cutout-built-in-labels").is_none(), "it finds no phrases");
    let body = json!({"image": image, "threshold": THRESHOLD});
    let function = "x-nuclio-function-name: cutout-sam3-labels";
    let sent = body.to_string();
    let answer =
        server.send("POST", "/api/function_invocations", &[function], sent.as_bytes()).json(200);
    let objects = answer.as_array().unwrap();
    let all = expected_masks(Find::phrase("cat").and("yellow school bus"));
    assert_eq!(objects.len(), all.iter().filter(|mask| mask.area() > 0).count());
    let first = all.iter().find(|mask| mask.area() > 0).unwrap();
    let pixels: Vec<usize> = serde_json::from_value(objects[0]["mask"].clone()).unwrap();
    let (pixels, bounds) = pixels.split_last_chunk::<4>().unwrap();
    assert_eq!(pixels.iter().sum::<usize>(), first.area());
    let wanted = first.bounds().unwrap();
    assert_eq!(*bounds, [wanted.left, wanted.top, wanted.right, wanted.bottom]);
    // Without a name it is told apart by what it does not hold.
    assert_eq!(server.post("/", &body).json(200), answer);
}

#[test]
fn phrases_are_tracked_through_a_clip() {
    let server = server(&[]);
    let frames: Vec<Image> = (0..4).map(|frame| picture(frame * 5)).collect();
    let clip = server.send("POST", "/api/v1/videos?model=sam3", &[], &zipped(&frames)).json(200);
    let path = format!("/api/v1/videos/{}/track", clip["video_id"].as_str().unwrap());
    let body = json!({"phrases": ["cat"], "threshold": THRESHOLD});
    let events: Vec<Event> = Events::ask(&server, &path, &body).collect();
    assert_eq!(events.last().unwrap().name, "done", "{:?}", events.last());
    let usual = PhraseOptions::default();
    let options = PhraseOptions { length: Some(4), detection_threshold: THRESHOLD as f32, ..usual };
    let mut tracker = model().track_phrases(&["cat"], options).unwrap();
    let mut wanted = Vec::new();
    for frame in &frames {
        wanted.extend(tracker.push(frame).unwrap());
    }
    while let Some(frame) = tracker.finish().unwrap() {
        wanted.push(frame);
    }
    assert!(wanted.iter().any(|frame| !frame.objects.is_empty()), "the model finds something");
    let found: Vec<&Value> =
        events.iter().filter(|event| event.name == "frame").map(|event| &event.data).collect();
    assert_eq!(found.len(), 4);
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found["frame"].as_u64(), Some(wanted.frame as u64));
        let masks = found["masks"].as_array().unwrap();
        assert_eq!(masks.len(), wanted.objects.len());
        for (mask, object) in masks.iter().zip(&wanted.objects) {
            assert_eq!(mask["object"].as_u64(), Some(u64::from(object.id)));
            assert_eq!(mask["phrase"], "cat");
            assert_eq!(rle(&mask["rle"]), object.mask);
        }
    }
    let refused = |body: Value| server.post(&path, &body).error(400);
    // Both ways from a frame in the middle, every frame once.
    let both = json!({"phrases": ["cat"], "threshold": THRESHOLD, "direction": "both", "start": 2});
    let events = Events::ask(&server, &path, &both).filter(|event| event.name == "frame");
    let order: Vec<u64> = events.map(|event| event.data["frame"].as_u64().unwrap()).collect();
    assert_eq!(order, [2, 3, 1, 0]);
    assert!(refused(json!({"phrases": [""]})).contains("phrase"));
    assert!(refused(json!({"phrases": ["cat"], "threshold": 7})).contains("between 0 and 1"));
}
