//! A clip of twelve frames through the tracker, against Meta's video predictor with the same small random models: two
//! objects, corrections, a mask prompt, an object that comes later, one that is removed, hidden objects, both directions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cutout_sam::imaging::{Image, Mask, Size};
use cutout_sam::{
    Corrections, Direction, Label, Point, Prompt, Rect, Sam, TrackOptions, TrackPrompt,
};
use cutout_sam::{TrackedObject, Tracker};
use cutout_tensor::Tensor;
use cutout_testing::StageFile;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};
use serde_json::Value;

/// How far logits may lie apart, relative to their size.
const TOLERANCE: f32 = 2e-3;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cutout-clip-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A clip, the model it was tracked with, and what was found.
struct Clip {
    file: StageFile,
    frames: Vec<Image>,
    size: Size,
    sam: Sam,
}

impl Clip {
    fn load(version: &str, folder: &Folder) -> Self {
        let file = StageFile::load(&format!("sam2/{version}_clip.safetensors")).unwrap();
        let frames = input(&file, "frames");
        let [count, height, width, 3] = frames.shape()[..] else { panic!("frames of other axes") };
        let size = Size::new(width, height);
        let pixels = frames.to_vec::<u8>().unwrap();
        let frames = pixels.chunks(pixels.len() / count);
        let frames = frames.map(|pixels| Image::from_rgb(size, pixels.to_vec()).unwrap()).collect();
        let sam = Sam::open(model(version, &file, folder)).unwrap();
        Clip { file, frames, size, sam }
    }

    fn tracker(&self, corrections: Corrections) -> Tracker {
        let length = Some(self.frames.len());
        self.sam.track(TrackOptions { length, corrections, ..TrackOptions::default() }).unwrap()
    }

    /// Does one step and compares what it gives.
    fn step(&self, tracker: &mut Tracker, run: &str, step: &Value, earlier: &[Value]) {
        let number = |key: &str| step[key].as_u64().unwrap() as usize;
        match step["do"].as_str().unwrap() {
            "remove" => tracker.remove(number("object") as u32).unwrap(),
            "track" => self.track(tracker, run, step),
            "points" | "box" | "mask" => {
                let frame = number("frame");
                if tracker.frame() != Some(frame) {
                    tracker.visit(frame, &self.frames[frame]).unwrap();
                }
                let mask = self.mask(step);
                let points = points(step, earlier);
                let prompt = mask.as_ref().map_or(TrackPrompt::Points(&points), TrackPrompt::Mask);
                let found = tracker.prompt(frame, number("object") as u32, prompt).unwrap();
                self.compare(run, frame, &[found]);
            }
            other => panic!("step {other}"),
        }
    }

    fn track(&self, tracker: &mut Tracker, run: &str, step: &Value) {
        let number = |key: &str| step[key].as_u64().unwrap() as usize;
        let (start, end) = (number("start"), number("end"));
        let (frames, direction): (Vec<usize>, _) = if step["reverse"].as_bool().unwrap() {
            ((end..=start).rev().collect(), Direction::Backward)
        } else {
            ((start..=end).collect(), Direction::Forward)
        };
        for frame in frames {
            let found = tracker.push_at(frame, &self.frames[frame], direction).unwrap();
            let ids: Vec<u64> = found.objects.iter().map(|object| object.id.into()).collect();
            assert_eq!(serde_json::to_value(ids).unwrap(), step["objects"], "{run}, frame {frame}");
            self.compare(run, frame, &found.objects);
        }
    }

    fn mask(&self, step: &Value) -> Option<Mask> {
        let mask = input(&self.file, &format!("mask.{}", step["mask"].as_str()?));
        let pixels = mask.to_vec::<u8>().unwrap().iter().map(|pixel| *pixel > 0).collect();
        Some(Mask::from_pixels(self.size, pixels).unwrap())
    }

    /// Compares objects on a frame with what Meta's predictor found.
    fn compare(&self, run: &str, frame: usize, objects: &[TrackedObject]) {
        let stage = |name: &str| self.file.stage(run, &format!("{frame}.{name}")).unwrap();
        let numbers = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap();
        let (logits, scores) = (numbers(&stage("logits")), numbers(&stage("object_score")));
        assert_eq!(scores.len(), objects.len(), "{run}, frame {frame}");
        for (object, (expected, score)) in
            objects.iter().zip(logits.chunks(logits.len() / scores.len()).zip(&scores))
        {
            let what = format!("{run}, frame {frame}, object {}", object.id);
            let found = object.segment.object_score().unwrap();
            assert!((found - score).abs() < TOLERANCE, "{what}: score {found}, expected {score}");
            let distance = distance(&numbers(object.segment.logits()), expected);
            assert!(distance < TOLERANCE, "{what}: logits are {distance} apart");
        }
    }
}

/// The largest difference, relative to the size of what is expected.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let squares: f32 = expected.iter().map(|value| value * value).sum();
    let size = (squares / expected.len() as f32).sqrt();
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    largest / size
}

fn input(file: &StageFile, name: &str) -> Tensor {
    file.inputs("clip").into_iter().find(|(other, _)| other == name).unwrap().1
}

/// The points and box of a step; with `more`, behind those of the step before it.
fn points(step: &Value, earlier: &[Value]) -> Prompt {
    let mut prompt = match (step["more"].as_bool(), earlier.split_last()) {
        (Some(true), Some((last, earlier))) => points(last, earlier),
        (Some(_) | None, _) => Prompt::default(),
    };
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    if let Some(labels) = step["labels"].as_array() {
        for (place, label) in step["points"].as_array().unwrap().iter().zip(labels) {
            let [x, y] = numbers(place)[..] else { panic!("a point of other axes") };
            let label = if label == 1 { Label::Positive } else { Label::Negative };
            prompt = prompt.with_point(Point { x, y }, label);
        }
    }
    if step["box"].is_array() {
        let [x0, y0, x1, y1] = numbers(&step["box"])[..] else { panic!("a box of other sides") };
        prompt = prompt.with_rect(Rect { x0, y0, x1, y1 });
    }
    prompt
}

/// The clip's model as a checkpoint.
fn model(version: &str, clip: &StageFile, folder: &Folder) -> PathBuf {
    let mut tensors = BTreeMap::new();
    let parts = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/{version}_{part}.safetensors")).unwrap());
    for file in parts.iter().chain([clip]) {
        let weights = file.weights();
        for path in weights.paths() {
            tensors.insert(path.to_owned(), weights.get(path).unwrap().clone());
        }
    }
    let outgoing: Vec<OutgoingTensor<'_>> =
        tensors.iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone())).collect();
    let config: Value = serde_json::from_str(&clip.metadata["config"]).unwrap();
    let keys = ["image_size", "heads", "windows", "global_blocks", "decoder_heads", "memory_heads"];
    let text = |key: &str| config[key].to_string().replace(['[', ']'], "");
    let metadata: Metadata =
        keys.map(|key| (format!("sam2.{key}"), text(key).as_str().into())).into();
    let path = folder.0.join(format!("{version}.safetensors"));
    write_safetensors(&path, &outgoing, &metadata).unwrap();
    path
}

fn follow(script: &str) {
    let folder = Folder::new(script);
    for version in ["2.0", "2.1"] {
        let clip = Clip::load(version, &folder);
        let scripts: Value = serde_json::from_str(&clip.file.metadata["scripts"]).unwrap();
        let steps = scripts[script]["steps"].as_array().unwrap();
        let condition = scripts[script]["corrected_frames_condition"].as_bool().unwrap();
        let corrections = if condition { Corrections::Condition } else { Corrections::Pass };
        let mut tracker = clip.tracker(corrections);
        for (number, step) in steps.iter().enumerate() {
            let run = format!("rounded.{script}.{number}");
            clip.step(&mut tracker, &run, step, &steps[..number]);
        }
    }
}

#[test]
fn two_objects_with_a_correction_there_and_back() {
    follow("main");
}

#[test]
fn masks_and_objects_that_come_later() {
    follow("later");
}

#[test]
fn corrections_that_pass() {
    follow("passing");
}
