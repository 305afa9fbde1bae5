//! Pictures and prompts in, masks out: the public API on a small model with random weights.

use std::path::{Path, PathBuf};

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{
    Candidates, Prompt, PromptError, Rect, Sam, Scene, SceneFileError, Segment, SegmentError,
};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::StageFile;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cutout-scene-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The small model as a checkpoint, with one weight scaled.
fn checkpoint(folder: &Folder, name: &str, scale: f32) -> PathBuf {
    let file = StageFile::load("sam1/wide.safetensors").unwrap();
    let weights = file.weights();
    let scaled = |path: &str, tensor: &Tensor| {
        if path != "image_encoder.neck.1.weight" {
            return tensor.clone();
        }
        let values = tensor.to_vec::<f32>().unwrap().iter().map(|value| value * scale).collect();
        Tensor::from_vec::<f32>(tensor.shape().clone(), values).unwrap()
    };
    let tensors: Vec<OutgoingTensor<'_>> = weights
        .paths()
        .map(|path| {
            OutgoingTensor::new(path, scaled(path, &weights.get(path).unwrap().tensor().unwrap()))
        })
        .collect();
    let path = folder.0.join(name);
    write_safetensors(&path, &tensors, &Metadata::new()).unwrap();
    path
}

/// A picture with varied pixels.
fn picture(size: Size) -> Image {
    let pixel = |i: usize| [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8];
    let pixels = (0..size.width * size.height).flat_map(pixel).collect();
    Image::from_rgb(size, pixels).unwrap()
}

fn scene(path: &Path) -> Scene {
    Sam::open(path).unwrap().embed(&picture(Size::new(50, 31))).unwrap()
}

fn assert_same(a: &Segment, b: &Segment) {
    let difference = compare(a.logits(), b.logits(), Tolerance::FastMath).unwrap();
    assert!(difference.within, "{difference}");
    assert!((a.iou() - b.iou()).abs() < 1e-5, "{} and {}", a.iou(), b.iou());
}

#[test]
fn a_prompt_has_one_mask_or_three() {
    let folder = Folder::new("counts");
    let scene = scene(&checkpoint(&folder, "model.safetensors", 1.0));
    let click = Prompt::point(20, 11);
    let three = scene.segment(&click).unwrap();
    assert_eq!(three.len(), 3);
    assert!(three.iter().all(|candidate| candidate.iou() <= three.best().iou()));
    assert_eq!(three.best().mask().unwrap().size(), Size::new(50, 31));
    assert!(
        three
            .iter()
            .all(|candidate| candidate.mask().unwrap()
                == candidate.rle().unwrap().to_mask().unwrap())
    );
    let one = scene.segment(&click.candidates(Candidates::One)).unwrap();
    assert_eq!(one.len(), 1);
    assert!(three.iter().all(|other| other.iou() != one.best().iou()), "token 0 is its own");
}

#[test]
fn many_prompts_are_answered_as_one_by_one() {
    let folder = Folder::new("many");
    let scene = scene(&checkpoint(&folder, "model.safetensors", 1.0));
    let refined = scene.segment(&Prompt::point(9, 9)).unwrap().best().logits().clone();
    let rect = Rect { x0: 3.0, y0: 4.0, x1: 30.0, y1: 29.0 };
    let mut prompts: Vec<Prompt> = (0..35).map(|i| Prompt::point(i, i / 2)).collect();
    prompts.insert(3, Prompt::rect(1.0, 2.0, 40.0, 30.0));
    prompts.insert(7, Prompt::point(3, 3).not(20, 5).with_rect(rect));
    prompts.insert(20, Prompt::point(9, 9).with_logits(refined.clone()));
    prompts.push(Prompt::logits(refined));
    let together = scene.segment_all(&prompts).unwrap();
    assert_eq!(together.len(), prompts.len());
    for (prompt, masks) in prompts.iter().zip(&together) {
        let alone = scene.segment(prompt).unwrap();
        assert_eq!(alone.len(), masks.len());
        alone.iter().zip(masks.iter()).for_each(|(a, b)| assert_same(a, b));
    }
}

#[test]
fn a_scene_comes_back_from_its_file() {
    let folder = Folder::new("file");
    let scene = scene(&checkpoint(&folder, "model.safetensors", 1.0));
    let path = folder.0.join("scene.safetensors");
    scene.save(&path).unwrap();
    let again = scene.sam().load_scene(&path).unwrap();
    assert_eq!(again.size(), scene.size());
    let prompt = Prompt::point(20, 11);
    let [first, second] = [&scene, &again].map(|scene| scene.clone().segment(&prompt).unwrap());
    assert_same(first.best(), second.best());
    let other = Sam::open(checkpoint(&folder, "other.safetensors", 2.0)).unwrap();
    let refused = other.load_scene(&path).map(|_| ()).unwrap_err();
    assert!(matches!(refused, SceneFileError::OtherModel { .. }), "{refused}");
    let model = scene.sam().load_scene(folder.0.join("model.safetensors")).map(|_| ()).unwrap_err();
    assert!(matches!(model, SceneFileError::NotAScene { .. }), "{model}");
}

#[test]
fn prompts_outside_the_picture_are_errors() {
    let folder = Folder::new("outside");
    let scene = scene(&checkpoint(&folder, "model.safetensors", 1.0));
    let error = scene.segment(&Prompt::point(51, 3)).map(|_| ()).unwrap_err();
    assert!(matches!(error, SegmentError::Prompt(PromptError::PointOutside { .. })), "{error}");
    assert!(scene.segment_all(&[]).unwrap().is_empty());
}

/// `Sam::check_prompt` rejects the same prompts as a scene, with the same message.
#[test]
fn prompts_are_checked_without_a_picture() {
    let folder = Folder::new("check");
    let scene = scene(&checkpoint(&folder, "model.safetensors", 1.0));
    let (sam, size) = (scene.sam(), scene.size());
    let side = scene.segment(&Prompt::point(3, 3)).unwrap().best().logits().shape()[0];
    let zeros = |side: usize| Tensor::from_vec([side, side], vec![0f32; side * side]).unwrap();
    sam.check_prompt(&Prompt::point(50, 31).with_logits(zeros(side)), size).unwrap();
    for (prompt, words) in [
        (Prompt::default(), "no point, no box and no mask"),
        (Prompt::point(20, 11).not(51, 3), "outside"),
        (Prompt::rect(0.0, 0.0, 60.0, 10.0), "outside"),
        (Prompt::rect(9.0, 9.0, 9.0, 10.0), "no area"),
        (Prompt::logits(zeros(side + 1)), "mask logits must be"),
    ] {
        let error = sam.check_prompt(&prompt, size).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(scene.segment(&prompt).map(|_| ()).unwrap_err().to_string(), error);
    }
}
