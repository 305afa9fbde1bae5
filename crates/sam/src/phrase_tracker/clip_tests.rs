//! A clip with made-up detections, against all of Meta's text pipeline but its detector (fixtures/make_sam3_phrases.py).

use cutout_imaging::{Image, Size};
use cutout_testing::{StageFile, rotation_tables};
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};
use serde_json::Value;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sam3");

/// The numbers of the fixture.
fn options(length: usize) -> PhraseOptions {
    PhraseOptions {
        length: Some(length),
        delay: 6,
        unmatched_frames: 3,
        duplicate_frames: 3,
        recondition_every: 2,
        fill_hole_area: 4,
        ..PhraseOptions::default()
    }
}

/// The tracker of the fixture's model, with higher object scores, and its frames.
fn tracker(file: &StageFile, confidence: f32) -> (PhraseTracker, Vec<Image>) {
    let weights = file.weights();
    let mut tensors: Vec<(String, Tensor)> = weights
        .paths()
        .map(|path| (path.to_owned(), weights.get(path).unwrap().tensor().unwrap()))
        .collect();
    for (name, tensor) in &mut tensors {
        if name.ends_with("pred_obj_score_head.layers.2.bias") {
            let raised = tensor.cast(cutout_tensor::DType::F32).unwrap().to_vec::<f32>().unwrap();
            let raised = raised.into_iter().map(|bias| bias + confidence).collect();
            *tensor = Tensor::from_vec::<f32>(tensor.shape().clone(), raised).unwrap();
        }
    }
    tensors.extend(rotation_tables(&file.metadata["config"]).unwrap());
    let path =
        std::env::temp_dir().join(format!("cutout-phrases-{}.safetensors", std::process::id()));
    let outgoing: Vec<OutgoingTensor> =
        tensors.into_iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor)).collect();
    write_safetensors(&path, &outgoing, &Metadata::new()).unwrap();
    let sam = Sam::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let inputs = file.inputs("clip").into_iter();
    let frames = inputs.filter(|(name, _)| name == "frames").map(|(_, it)| it).next().unwrap();
    let [count, height, width, 3] = frames.shape()[..] else { panic!("{}", frames.ty()) };
    let pixels = frames.to_vec::<u8>().unwrap();
    let frame = |pixels: &[u8]| Image::from_rgb(Size::new(width, height), pixels.to_vec()).unwrap();
    let frames: Vec<Image> = pixels.chunks(pixels.len() / count).map(frame).collect();
    let options = options(frames.len());
    let track = TrackOptions { length: options.length, ..TrackOptions::default() };
    let phrase = Phrase {
        find: Find::phrase("thing"),
        text: "thing".to_owned(),
        record: PhraseRecord::default(),
        presence: 0.0,
    };
    let tracker = PhraseTracker {
        tracker: sam.track(track).unwrap(),
        held: HeldBack::new(options.delay),
        phrases: vec![phrase],
        tracks: BTreeMap::new(),
        next_id: 0,
        options,
    };
    (tracker, frames)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The detections of a pass.
fn candidates(file: &Checkpoint, run: &str, pass: &Value) -> Vec<Candidate> {
    let masks = file.tensor(&format!("{run}.{}.detections", pass["pass"])).unwrap();
    let masks = masks.cast(cutout_tensor::DType::F32).unwrap().to_vec::<f32>().unwrap();
    let scores = numbers(&pass["detected"]);
    let size = masks.len() / scores.len().max(1);
    let candidate = |(index, score): (usize, &f64)| Candidate {
        score: *score as f32,
        logits: masks[index * size..][..size].to_vec(),
    };
    scores.iter().enumerate().map(candidate).collect()
}

/// Every second pixel of the masks that are remembered, compared with Meta's.
fn check_masks(file: &Checkpoint, run: &str, pass: &Value, followed: &[Followed]) {
    let ids: Vec<f64> = followed.iter().map(|one| f64::from(one.id)).collect();
    assert_eq!(ids, numbers(&pass["ids"]), "pass {}", pass["pass"]);
    if ids.is_empty() {
        return;
    }
    let expected =
        file.tensor(&format!("{run}.{}.masks", pass["pass"])).unwrap().to_vec::<f32>().unwrap();
    let side = followed[0].logits.len().isqrt();
    let half = side / 2;
    for (index, one) in followed.iter().enumerate() {
        for (position, wanted) in expected[index * half * half..][..half * half].iter().enumerate()
        {
            let found = one.logits[position / half * 2 * side + position % half * 2];
            let away = (found - wanted).abs();
            assert!(
                away < 2e-3 * wanted.abs().max(1.0),
                "pass {}, object {}: {found} {wanted}",
                pass["pass"],
                one.id
            );
        }
    }
}

#[test]
fn a_clip_is_followed_as_by_metas_pipeline() {
    let file = Checkpoint::open(format!("{FOLDER}/phrases.safetensors")).unwrap();
    let runs = file.metadata().get("runs").unwrap().to_string();
    let runs: serde_json::Map<String, Value> = serde_json::from_str(&runs).unwrap();
    runs.iter().for_each(|(name, run)| follow(&file, name, run));
}

/// Goes through the clip and compares every pass.
fn follow(file: &Checkpoint, name: &str, run: &Value) {
    let clip = StageFile::load("sam3/clip.safetensors").unwrap();
    let (mut tracker, frames) = tracker(&clip, run["confidence"].as_f64().unwrap() as f32);
    for pass in run["passes"].as_array().unwrap() {
        let frame = pass["frame"].as_u64().unwrap() as usize;
        let step = FrameStep { frame, backward: false };
        tracker.tracker.look(frame, &frames[frame], Direction::Forward).unwrap();
        let found = vec![tracker.distinct(candidates(file, name, pass))];
        let before = tracker.next_id;
        let (decisions, followed) = tracker.settle_masks(step, &found).unwrap();
        check_masks(file, name, pass, &followed);
        let settled = tracker.settle_objects(step, &found, &decisions, followed);
        let (answer, removed) = settled.unwrap();
        let new = f64::from(tracker.next_id - before);
        assert_eq!(new, numbers(&pass["new"]).len() as f64, "pass {}", pass["pass"]);
        let removed: Vec<f64> = removed.iter().map(|id| *id as f64).collect();
        assert_eq!(removed, numbers(&pass["removed"]), "pass {}", pass["pass"]);
        for object in &answer.objects {
            let area = pass["areas"][object.id.to_string()].as_u64().unwrap();
            let away = area.abs_diff(object.mask.area() as u64);
            assert!(away <= 2, "pass {}, object {}: {area}", pass["pass"], object.id);
        }
    }
}
