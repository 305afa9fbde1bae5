//! Values stay on the device between programs: transfers are counted, on every backend there is. The interpreter's values are
//! not host tensors, so that a hidden read would fail there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pictures;
mod support;

use std::sync::Arc;

use cutout_graph::{Backend, Profile};
use cutout_parallel::Pool;
use cutout_sam::imaging::{Image, Size};
use cutout_sam::parts::{Encode, Pixels};
use cutout_sam::{
    Direction, Everything, Prompt, Sam, TrackOptions, TrackedFrame, Tracker, TransferCounts, device,
};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::{Interpreted, StageFile};
use cutout_weights::Checkpoint;
use support::{ModelFile, SmallModel, sam2_metadata, tensors};

fn backends() -> Vec<Arc<dyn Backend>> {
    let mut backends = device::backends(2);
    backends.push(Arc::new(Interpreted::default()));
    backends
}

/// A small SAM 2.1 with random weights.
fn model_file(test: &str) -> ModelFile {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap());
    ModelFile::write(&tensors(&files), &sam2_metadata(&files[0]), test)
}

fn open(file: &ModelFile, backend: Arc<dyn Backend>) -> Sam {
    let checkpoint = Checkpoint::open(&file.0).unwrap();
    Sam::on(&checkpoint, Profile::default(), backend, Arc::new(Pool::new(1))).unwrap()
}

fn frame(number: usize) -> Image {
    let size = Size::new(64, 48);
    let pixel = |i: usize| {
        let bright = (i % size.width + number) % 40 < 15;
        [if bright { 220 } else { 30 }, (i / size.width) as u8 * 4, number as u8]
    };
    Image::from_rgb(size, (0..size.width * size.height).flat_map(pixel).collect()).unwrap()
}

/// What crosses between host and device while `work` runs.
fn transfers(sam: &Sam, work: impl FnOnce()) -> [u64; 2] {
    let TransferCounts { fetches, uploads, .. } = sam.transfers();
    work();
    let after = sam.transfers();
    [after.fetches - fetches, after.uploads - uploads]
}

const PROMPTS: [[f64; 4]; 3] =
    [[5.0, 5.0, 40.0, 40.0], [20.0, 10.0, 60.0, 44.0], [2.0, 20.0, 30.0, 47.0]];

/// A tracker with these objects shown on its first frame.
fn tracker(sam: &Sam, objects: &[usize]) -> Tracker {
    let mut tracker = sam.track(TrackOptions::default()).unwrap();
    tracker.push(&frame(0)).unwrap();
    for &object in objects {
        let [x0, y0, x1, y1] = PROMPTS[object];
        tracker.prompt(0, object as u32, &Prompt::rect(x0, y0, x1, y1)).unwrap();
    }
    tracker
}

#[test]
fn a_tracked_frame_fetches_masks_and_scores_alone() {
    let file = model_file("residency-track");
    for backend in backends() {
        let (name, together) = (backend.name(), backend.batch_limit().min(2));
        let sam = open(&file, backend);
        let objects: Vec<usize> = (0..together).collect();
        let mut tracker = tracker(&sam, &objects);
        for number in 1..4 {
            tracker.push(&frame(number)).unwrap();
        }
        // Logits, predicted IoU and object score come; pixels, and the ages and distances of memories go.
        let crossed = transfers(&sam, || drop(tracker.push(&frame(4)).unwrap()));
        assert_eq!(crossed, [3, 3], "{name}");
    }
}

#[test]
fn a_click_fetches_its_answer_alone() {
    let file = model_file("residency-click");
    for backend in backends() {
        let name = backend.name();
        let sam = open(&file, backend);
        let mut scene = None;
        // What depends on the size of pictures goes to another device once.
        sam.embed(&frame(1)).unwrap();
        let crossed = transfers(&sam, || scene = Some(sam.embed(&frame(0)).unwrap()));
        assert_eq!(crossed, [0, 1], "{name}: embedding takes pixels");
        let scene = scene.unwrap();
        let click = Prompt::point(20, 20);
        let crossed = transfers(&sam, || drop(scene.segment(&click).unwrap()));
        // Points and their kinds go; logits, the same within bounds, predicted IoU and object score come.
        assert_eq!(crossed, [4, 2], "{name}");
    }
}

#[test]
fn automatic_masks_fetch_scores_and_bits_alone() {
    let file = model_file("residency-everything");
    let options = Everything {
        points_per_side: 2,
        pred_iou_thresh: 0.0,
        stability_score_thresh: 0.0,
        ..Everything::default()
    };
    for backend in backends() {
        let (name, on_host) = (backend.name(), backend.values_are_on_host());
        let sam = open(&file, backend);
        let scene = sam.embed(&frame(0)).unwrap();
        // The inputs of the decoder that no prompt changes are computed once.
        scene.segment(&Prompt::point(20, 20)).unwrap();
        let before = sam.transfers();
        let crossed = transfers(&sam, || drop(scene.everything(&options).unwrap()));
        // Points and their kinds go, and to another device which of the masks are wanted; the predicted IoU comes, and
        // the masks: 12 as logits, or 16 of 64 by 48 pixels as bits with two counts.
        assert_eq!(crossed, [2, if on_host { 2 } else { 3 }], "{name}");
        let fetched = sam.transfers().fetched_bytes - before.fetched_bytes;
        let bits = 16 * (2 + 64 * 2) * 4;
        assert_eq!(!on_host, fetched == 12 * 4 + bits, "{name}: {fetched} bytes");
    }
}

/// A model that tells frames apart, and a clip.
fn clip(test: &str) -> (ModelFile, Vec<Image>) {
    let files = ["image", "memory", "clip"]
        .map(|part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap());
    let inputs = files[2].inputs("clip");
    let (_, frames) = inputs.into_iter().find(|(name, _)| name == "frames").unwrap();
    let [count, height, width, 3] = frames.shape()[..] else { panic!("{}", frames.ty()) };
    let pixels = frames.to_vec::<u8>().unwrap();
    let frame = |pixels: &[u8]| Image::from_rgb(Size::new(width, height), pixels.to_vec()).unwrap();
    let frames = pixels.chunks(pixels.len() / count).map(frame).collect();
    (ModelFile::write(&tensors(&files), &sam2_metadata(&files[0]), test), frames)
}

/// Frames that are known ahead of time, and one that is another than was told, have the masks that they have without.
#[test]
fn frames_ahead_change_no_mask() {
    let (file, frames) = clip("residency-ahead");
    for backend in backends() {
        let name = backend.name();
        let sam = open(&file, backend);
        let [mut plain, mut ahead] = [0, 1].map(|_| {
            let mut tracker = sam.track(TrackOptions::default()).unwrap();
            tracker.push(&frames[0]).unwrap();
            tracker.prompt(0, 1, &Prompt::point(20, 20)).unwrap();
            tracker
        });
        let mut before = Vec::new();
        for number in 1..6 {
            let expected = plain.push(&frames[number]).unwrap();
            ahead.visit(number, &frames[number]).unwrap();
            ahead.look_ahead(&frames[if number == 3 { 8 } else { number + 1 }]);
            let found = ahead.push_at(number, &frames[number], Direction::Forward).unwrap();
            let [found, expected] = [found, expected].map(|tracked: TrackedFrame| {
                tracked.objects[0].segment.logits().to_vec::<f32>().unwrap()
            });
            assert!(found == expected, "{name}, frame {number}");
            assert!(found != before, "{name}, frame {number}: frames that differ");
            before = found;
        }
        // The next frame is encoded already where a device is given work while the host goes on: nothing but the ages and distances of
        // memories goes there then.
        if sam.computes_beside_host() {
            let crossed = transfers(&sam, || drop(ahead.push(&frames[6]).unwrap()));
            assert_eq!(crossed, [3, 2], "{name}");
        }
    }
}

fn assert_near(found: &TrackedFrame, expected: &TrackedFrame, object: usize, what: &str) {
    let of = |frame: &TrackedFrame| {
        let found = frame.objects.iter().find(|one| one.id == object as u32).unwrap();
        found.segment.clone()
    };
    let (found, expected) = (of(found), of(expected));
    let difference = compare(found.logits(), expected.logits(), Tolerance::Stage).unwrap();
    assert!(difference.within, "{what}, object {object}: {difference}");
    assert!((found.iou() - expected.iou()).abs() < 1e-4, "{what}, object {object}");
}

/// Three objects in one program, or in two where the device takes two at once, are found where each is found alone.
#[test]
fn objects_together_are_objects_alone() {
    let file = model_file("residency-objects");
    for backend in backends() {
        let name = backend.name();
        let sam = open(&file, backend);
        let mut all = tracker(&sam, &[0, 1, 2]);
        let together: Vec<TrackedFrame> =
            (1..5).map(|number| all.push(&frame(number)).unwrap()).collect();
        for object in 0..3 {
            let mut alone = tracker(&sam, &[object]);
            for (number, together) in (1..5).zip(&together) {
                let alone = alone.push(&frame(number)).unwrap();
                assert_near(together, &alone, object, &format!("{name}, frame {number}"));
            }
        }
    }
}

#[test]
fn pictures_together_are_pictures_alone() {
    let file = model_file("residency-pictures");
    for backend in backends() {
        let (name, at_once) = (backend.name(), backend.batch_limit());
        let on_host = backend.values_are_on_host();
        let sam = open(&file, backend);
        sam.embed(&frame(1)).unwrap();
        let images: Vec<Image> = (0..=at_once).map(|number| frame(7 * number)).collect();
        let mut scenes = Vec::new();
        let crossed = transfers(&sam, || scenes = sam.embed_all(&images).unwrap());
        // One picture more than the device takes at once; pictures that are resized on the host go there together.
        let uploads = if on_host { 2 } else { images.len() as u64 };
        assert_eq!(crossed, [0, uploads], "{name}");
        assert_eq!(scenes.len(), images.len());
        for (scene, image) in scenes.iter().zip(&images) {
            let alone = sam.embed(image).unwrap().image_embedding().unwrap();
            let found = scene.image_embedding().unwrap();
            let difference = compare(&found, &alone, Tolerance::Stage).unwrap();
            assert!(difference.within, "{name}: {difference}");
        }
    }
}

#[test]
fn memory_that_is_released_is_made_again() {
    let file = model_file("residency-release");
    let SmallModel(model) = SmallModel::open(&Checkpoint::open(&file.0).unwrap()).unwrap();
    let size = model.config().encoder.image_size();
    let pixels = Tensor::from_vec([1, size, size, 3], vec![0.25f32; 3 * size * size]).unwrap();
    let pixels = model.upload(&pixels).unwrap();
    let embedding = || {
        let pixels = Pixels { pixels: pixels.clone() };
        let encoded = model.run(&Encode { pictures: 1 }, pixels).unwrap().pictures.remove(0);
        encoded.embedding.unwrap().fetch().unwrap().to_vec::<f32>().unwrap()
    };
    let first = embedding();
    let held = model.weights().memory();
    assert!(held.packed > 0);
    model.evict();
    assert_eq!(model.weights().memory(), Default::default());
    assert_eq!(embedding(), first);
    assert_eq!(model.weights().memory(), held);
}
