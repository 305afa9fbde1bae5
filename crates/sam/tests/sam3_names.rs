//! SAM 3 under other tensor names: saved and in-memory names of Hugging Face's tracker, and SAM 3.1.

use crate::small_sam3::{Small, assert_near};
use crate::support::{Folder, ModelFile, Tensors, outgoing, tensors};
use cutout_sam::imaging::{Image, Size};
use cutout_sam::{
    Candidates, Direction, Family, Find, Label, Masks, Point, Prompt, Rect, Sam, TrackError,
    TrackOptions,
};
use cutout_tensor::Tensor;
use cutout_testing::StageFile;
use cutout_weights::{Checkpoint, Encoding, Metadata, write_gguf};

/// Clicks, a box, a mask and candidates, on a picture of any size above 30.
fn asked(sam: &Sam, image: &Image) -> Vec<Masks> {
    let scene = sam.embed(image).unwrap();
    let click = Prompt::point(17, 20).not(5, 29);
    let rect = Rect { x0: 4.0, y0: 6.0, x1: 25.0, y1: 30.0 };
    let first = scene.segment(&click.clone().candidates(Candidates::Three)).unwrap();
    let box_and_click =
        Prompt::default().with_rect(rect).with_point(Point { x: 9.0, y: 9.0 }, Label::Positive);
    let again = click.clone().with_logits(first.best().logits().clone());
    let mut answers = vec![first];
    for prompt in [click, Prompt::default().with_rect(rect), box_and_click, again] {
        answers.push(scene.segment(&prompt.candidates(Candidates::One)).unwrap());
    }
    answers
}

/// Logits of an object on a few frames; `None` if the file cannot track.
fn tracked(sam: &Sam, image: &Image) -> Option<Vec<Tensor>> {
    let mut tracker = match sam.track(TrackOptions::default()) {
        Err(TrackError::NoMemory { .. }) => return None,
        other => other.unwrap(),
    };
    tracker.push(image).unwrap();
    tracker.prompt(0, 1, &Prompt::point(17, 20)).unwrap();
    let frames = (0..4).map(|frame| {
        let found = tracker.push_at(frame, image, Direction::Forward).unwrap();
        found.objects[0].segment.logits().clone()
    });
    Some(frames.collect())
}

/// Compares logits and object scores number by number.
fn assert_same_masks(found: &[Masks], expected: &[Masks], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (a, b) in found.iter().zip(expected.iter()) {
            assert_near(a.logits(), b.logits(), 0.0, what);
            assert_eq!(a.object_score(), b.object_score(), "{what}");
        }
    }
}

/// A name, but for those that are left out.
type Rename = fn(&str) -> Option<String>;

fn renamed(weights: &Tensors, rename: impl Fn(&str) -> Option<String>) -> Tensors {
    let pairs = weights.iter();
    pairs.filter_map(|(name, tensor)| Some((rename(name)?, tensor.clone()))).collect()
}

/// Whether only video tracking needs a tensor.
fn is_memory(name: &str) -> bool {
    let parts = [
        "memory_attention.",
        "memory_encoder.",
        "memory_temporal_",
        "object_pointer",
        "no_memory_positional_",
        "mask_downsample.",
        "occlusion_",
        "temporal_positional_",
    ];
    parts.iter().any(|part| name.contains(part))
}

/// The ways in which files hold Hugging Face's tracker, from the names that `transformers` writes.
const TRACKERS: [(&str, Rename); 4] = [
    ("Sam3TrackerModel, saved", |name| (!is_memory(name)).then(|| name.to_owned())),
    ("Sam3TrackerVideoModel, called", |name| Some(called(name))),
    ("Sam3TrackerModel, called", |name| (!is_memory(name)).then(|| called(name))),
    ("the tracker of Sam3VideoModel", |name| Some(in_video(name))),
];

/// In-memory name of a tensor in `transformers`.
fn called(name: &str) -> String {
    let name = name.strip_prefix("tracker_model.").unwrap();
    let name = name.strip_prefix("detector_model.").unwrap_or(name);
    name.replace("tracker_neck.", "vision_encoder.neck.")
}

/// A tensor's name in a file of detector and tracker.
fn in_video(name: &str) -> String {
    let inner = name.strip_prefix("tracker_model.").unwrap();
    let shared = inner.starts_with("detector_model.") || inner.starts_with("tracker_neck.");
    if shared { inner.to_owned() } else { name.to_owned() }
}

#[test]
fn a_tracker_answers_the_same_under_all_its_names() {
    let file = StageFile::load("sam3/hugging_face_tracker.safetensors").unwrap();
    let weights = tensors([&file]);
    assert!(weights.keys().all(|name| name.starts_with("tracker_model.")));
    let pixels = file.tensor("landscape/pixels").unwrap();
    let size = Size::new(pixels.shape()[1], pixels.shape()[0]);
    let image = Image::from_rgb(size, pixels.to_vec::<u8>().unwrap()).unwrap();
    let ask = |weights: &Tensors, name: &str| {
        let file = ModelFile::write(weights, &Metadata::new(), &name.replace([' ', ','], "-"));
        let sam = file.open();
        assert_eq!(sam.identity().family, Family::Sam3, "{name}");
        (asked(&sam, &image), tracked(&sam, &image))
    };
    let (expected, followed) = ask(&weights, "Sam3TrackerVideoModel, saved");
    let followed = followed.unwrap();
    for (name, rename) in TRACKERS {
        let weights = renamed(&weights, rename);
        let (found, tracked) = ask(&weights, name);
        assert_same_masks(&found, &expected, name);
        assert_eq!(tracked.is_some(), !name.starts_with("Sam3TrackerModel"), "{name}");
        for (found, expected) in tracked.iter().flatten().zip(&followed) {
            assert_near(found, expected, 0.0, name);
        }
    }
    let folder = Folder::new("sam3-tracker-gguf");
    let path = folder.0.join("model.gguf");
    write_gguf(&path, &outgoing(&weights), &Metadata::new(), Encoding::Keep).unwrap();
    let sam = Sam::open(&path).unwrap();
    assert_same_masks(&asked(&sam, &image), &expected, "GGUF");
    for (found, expected) in tracked(&sam, &image).unwrap().iter().zip(&followed) {
        assert_near(found, expected, 0.0, "GGUF");
    }
}

/// Prefixes that differ between SAM 3 and SAM 3.1.
const SAM3_1: [(&str, &str); 4] = [
    (
        "detector.backbone.vision_backbone.sam2_convs.",
        "detector.backbone.vision_backbone.interactive_convs.",
    ),
    ("tracker.sam_mask_decoder.", "tracker.model.interactive_sam_mask_decoder."),
    ("tracker.sam_prompt_encoder.", "tracker.model.interactive_sam_prompt_encoder."),
    ("tracker.no_mem_embed", "tracker.model.interactivity_no_mem_embed"),
];

/// The name of a tensor of SAM 3 in a file of SAM 3.1, whose necks have one level less.
fn in_sam3_1(name: &str) -> Option<String> {
    if name.contains("convs.3.") {
        return None;
    }
    let known =
        SAM3_1.iter().find_map(|(old, new)| Some(format!("{new}{}", name.strip_prefix(old)?)));
    known.or_else(|| name.starts_with("detector.").then(|| name.to_owned()))
}

/// A small SAM 3.1: the small SAM 3 under its names, and some of what only its tracker needs.
fn small_sam3_1(small: &Small) -> Tensors {
    let weights = small.weights();
    let mut tensors = renamed(&weights, in_sam3_1);
    let ones =
        |shape: &[usize]| Tensor::from_vec(shape, vec![1f32; shape.iter().product()]).unwrap();
    for name in
        weights.keys().filter(|name| name.contains(".sam2_convs.") && !name.contains("convs.3."))
    {
        tensors
            .insert(name.replace("sam2_convs", "propagation_convs"), ones(weights[name].shape()));
    }
    tensors.insert("tracker.model.sam_mask_decoder.mask_tokens.weight".into(), ones(&[48, 32]));
    tensors.insert("tracker.model.output_valid_embed".into(), ones(&[16, 32]));
    tensors
}

#[test]
fn sam_3_1_finds_and_answers_clicks() {
    let small = Small::new("sam3-1");
    let (old, image) = (small.open(), small.picture("landscape"));
    let path = small.write("sam3.1", &small_sam3_1(&small));
    let sam = Sam::open(&path).unwrap();
    assert_eq!(sam.identity().family, Family::Sam3_1);
    assert!(sam.description().starts_with("SAM 3.1"), "{}", sam.description());
    let detect = |sam: &Sam| {
        let scene = sam.embed(&image).unwrap();
        scene.raw_detections(&Find::phrase("yellow school bus")).unwrap().next().unwrap().unwrap()
    };
    let (found, expected) = (detect(&sam), detect(&old));
    assert_near(found.pred_masks(), expected.pred_masks(), 0.0, "masks");
    assert_near(found.pred_boxes(), expected.pred_boxes(), 0.0, "boxes");
    assert_near(found.pred_logits(), expected.pred_logits(), 0.0, "scores");
    let (found, expected) = (asked(&sam, &image), asked(&old, &image));
    assert_same_masks(&found, &expected, "clicks");
    // Predicted IoU is given as it comes, and not between 0 and 1.
    let iou = |answers: &[Masks]| -> Vec<f32> {
        answers.iter().flat_map(Masks::iter).map(cutout_sam::Segment::iou).collect()
    };
    for (a, b) in iou(&found).into_iter().zip(iou(&expected)) {
        let logit = (b / (1.0 - b)).ln();
        assert!((a - logit).abs() < 1e-4 && (a - b).abs() > 1e-3, "{a}, {b}");
    }
}

/// Conversion keeps the names that identify the model.
#[test]
fn sam_3_1_is_still_itself_when_converted() {
    let (small, folder) = (Small::new("sam3-1-converted"), Folder::new("sam3-1-converted"));
    let original = small.write("sam3.1", &small_sam3_1(&small));
    let checkpoint = Checkpoint::open(&original).unwrap();
    let model = cutout_weights::layout::Model::of(&checkpoint).unwrap();
    let path = folder.0.join("model.gguf");
    write_gguf(&path, &model.outgoing().tensors, &Metadata::new(), Encoding::Keep).unwrap();
    let [sam, again] = [&original, &path].map(|path| Sam::open(path).unwrap());
    assert_eq!(sam.identity(), again.identity());
    let image = small.picture("portrait");
    assert_same_masks(&asked(&again, &image), &asked(&sam, &image), "clicks");
}
