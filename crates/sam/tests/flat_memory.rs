//! Memory use of the tracker does not grow with the video.
#![allow(unsafe_code, reason = "a global allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{ObjectId, PhraseOptions, Prompt, Sam, TrackOptions};
use cutout_testing::{SmallSam3, StageFile, rotation_tables};
use cutout_weights::Metadata;
use support::{ModelFile, sam2_metadata, tensors};

const FRAMES: usize = 3000;
/// Frames with twenty objects.
const BUCKET_FRAMES: usize = 400;

/// A small SAM 3 with random weights, whose memories can reach back to any frame, or a small SAM 3.1.
fn small_sam3(fixture: &str) -> Sam {
    let file = StageFile::load(&format!("sam3/{fixture}.safetensors")).unwrap();
    let mut weights = tensors([&file]);
    weights.extend(rotation_tables(&file.metadata["config"]).unwrap());
    ModelFile::write(&weights, &Metadata::new(), &format!("flat-sam3-{fixture}")).open()
}

/// A small SAM 2.1 with random weights.
fn small_sam2() -> Sam {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap());
    ModelFile::write(&tensors(&files), &sam2_metadata(&files[0]), "flat").open()
}

fn frame(number: usize) -> Image {
    let size = Size::new(64, 48);
    let pixel = |i: usize| {
        let bright = (i % size.width + number) % 40 < 15;
        [if bright { 220 } else { 30 }, (i / size.width) as u8 * 4, (number % 256) as u8]
    };
    Image::from_rgb(size, (0..size.width * size.height).flat_map(pixel).collect()).unwrap()
}

/// Counts the bytes that are allocated and not freed. Unlike resident memory this does not depend on the system's
/// allocator and pages.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator with the arguments it came with; the counter touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test: the counter is for the whole process.
#[test]
fn live_bytes_do_not_grow_with_the_video() {
    for sam in [small_sam2(), small_sam3("clip")] {
        check(&sam);
    }
    check_buckets();
    check_phrases();
}

/// Twenty objects in five buckets of four, of which some are corrected, removed and begun all the time.
fn check_buckets() {
    let sam = small_sam3("multiplex_clip");
    let mut tracker = sam.track(TrackOptions::default()).unwrap();
    let click = |id: u32| Prompt::point(3 * id + 1, 2 * id + 1);
    let (mut next, mut early, mut most_early, mut most_late) = (0, 0, 0, 0);
    for number in 0..BUCKET_FRAMES {
        let tracked = tracker.push(&frame(number)).unwrap();
        assert_eq!(tracked.objects.len(), if number == 0 { 0 } else { 20 });
        if number > 0 && number % 10 == 0 {
            tracker.remove(next - 20).unwrap();
            // An object that is corrected begins anew in another bucket.
            tracker.prompt(number, next - 10, &click(7)).unwrap();
        }
        while tracker.objects().count() < 20 {
            tracker.prompt(number, next, &click(next % 20)).unwrap();
            next += 1;
        }
        let kept = tracker.kept();
        // Each object has one prompted frame, and frames in reach on either side.
        assert!(kept.prompted_frames <= 20 && kept.recent_frames <= 20 * 33, "{number}: {kept}");
        if number < BUCKET_FRAMES / 2 {
            (most_early, early) = (most_early.max(kept.bytes), LIVE.load(Ordering::Relaxed));
        } else {
            most_late = most_late.max(kept.bytes);
        }
    }
    let late = LIVE.load(Ordering::Relaxed);
    assert!(most_late <= most_early + most_early / 10, "{most_early} bytes, then {most_late}");
    assert!(late < early + early / 10, "{early} bytes in the middle, {late} at the end");
}

/// Objects of a phrase that are born, renewed and removed all the time.
fn check_phrases() {
    let weights = SmallSam3::load().unwrap().weights_with_memory().unwrap();
    let sam =
        ModelFile::write(&weights.into_iter().collect(), &Metadata::new(), "flat-phrases").open();
    let options = PhraseOptions {
        detection_threshold: 0.0,
        new_object_threshold: 0.0,
        fill_hole_area: 0,
        delay: 6,
        unmatched_frames: 2,
        duplicate_frames: 2,
        recondition_every: 2,
        recondition_score: 0.0,
        recondition_iou: 0.0,
        recondition_logit: -100.0,
        max_objects: 3,
        ..PhraseOptions::default()
    };
    let mut tracker = sam.track_phrases(&["cat"], options).unwrap();
    let (mut alive, mut births, mut deaths) = (BTreeSet::new(), 0, 0);
    let (mut early, mut most_early, mut most_late) = (0, 0, 0);
    for number in 0..FRAMES {
        tracker.push(&frame(number)).unwrap();
        let now: BTreeSet<ObjectId> = tracker.objects().collect();
        births += now.difference(&alive).count();
        deaths += alive.difference(&now).count();
        alive = now;
        let kept = tracker.kept();
        // The closest four prompted frames are read, and the last sixteen clear ones out of reach on either side.
        let most_recent = 2 * 16 + 16 + 1;
        assert!(kept.prompted_frames <= 5 * kept.objects, "frame {number}: {kept}");
        assert!(kept.recent_frames <= most_recent * kept.objects, "frame {number}: {kept}");
        assert!(kept.held_back <= 5, "frame {number}: {kept}");
        if number < 300 {
            most_early = most_early.max(kept.bytes);
        }
        if number == 100 {
            early = LIVE.load(Ordering::Relaxed);
        }
        if number > FRAMES - 300 {
            most_late = most_late.max(kept.bytes);
        }
    }
    let late = LIVE.load(Ordering::Relaxed);
    assert!(births > 100 && deaths > 100, "{births} births, {deaths} deaths");
    assert!(most_late <= most_early, "{most_early} bytes kept at first, {most_late} at the end");
    // One memory of one object has 81 cells of 8 channels in half precision, and its mask 36 by 36 logits.
    let records = late.saturating_sub(early) / (81 * 8 * 2 + 36 * 36 * 4);
    assert!(records < 60, "{early} bytes at frame 100, {late} at the end");
}

fn check(sam: &Sam) {
    let mut tracker = sam.track(TrackOptions::default()).unwrap();
    // Memories reach back seven frames, pointers sixteen.
    assert_eq!(tracker.reach(), 16);
    tracker.push(&frame(0)).unwrap();
    tracker.prompt(0, 1, &Prompt::point(20, 20)).unwrap();
    tracker.prompt(0, 2, &Prompt::rect(5.0, 5.0, 40.0, 40.0)).unwrap();
    let mut early = 0;
    for number in 1..FRAMES {
        let tracked = tracker.push(&frame(number)).unwrap();
        assert_eq!(tracked.objects.len(), 2);
        if number == 100 {
            early = LIVE.load(Ordering::Relaxed);
        }
    }
    let late = LIVE.load(Ordering::Relaxed);
    // A frame that is never forgotten would add its pixels alone, 9 KiB, every time.
    let frames = (late.saturating_sub(early)) / (64 * 48 * 3);
    assert!(frames < 20, "{early} bytes at frame 100, {late} at the end");
}
