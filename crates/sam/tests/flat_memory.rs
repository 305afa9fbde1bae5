//! A long video runs in the memory of a short one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Prompt, Sam, TrackOptions};
use cutout_testing::StageFile;
use support::{ModelFile, sam2_metadata, tensors};

const FRAMES: usize = 3000;

/// A small SAM 2.1 with random weights.
fn small_sam() -> Sam {
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

/// KiB that are resident; nothing where the system does not tell.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[test]
fn memory_at_the_end_is_that_of_the_beginning() {
    let sam = small_sam();
    let mut tracker = sam.track(TrackOptions::default()).unwrap();
    // Memories reach back seven frames, pointers sixteen.
    assert_eq!(tracker.reach(), 16);
    tracker.push(&frame(0)).unwrap();
    tracker.prompt(0, 1, &Prompt::point(20, 20)).unwrap();
    tracker.prompt(0, 2, &Prompt::rect(5.0, 5.0, 40.0, 40.0)).unwrap();
    let mut early = None;
    for number in 1..FRAMES {
        let tracked = tracker.push(&frame(number)).unwrap();
        assert_eq!(tracked.objects.len(), 2);
        if number == 100 {
            early = resident();
        }
    }
    let (Some(early), Some(late)) = (early, resident()) else {
        eprintln!("skipped: this system does not tell how much memory is resident");
        return;
    };
    assert!(late < 1.05 * early, "{late} KiB at the end, {early} KiB at frame 100");
}
