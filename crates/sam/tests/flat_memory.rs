//! A long video runs in the memory of a short one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Prompt, Sam, TrackOptions};
use cutout_testing::StageFile;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

const FRAMES: usize = 3000;

/// A small SAM 2.1 with random weights, as a checkpoint.
fn checkpoint() -> PathBuf {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap());
    let json: serde_json::Value = serde_json::from_str(&files[0].metadata["config"]).unwrap();
    let keys = ["image_size", "heads", "windows", "global_blocks", "decoder_heads", "memory_heads"];
    let text = |key: &str| json[key].to_string().replace(['[', ']'], "");
    let metadata =
        Metadata::from(keys.map(|key| (format!("sam2.{key}"), text(key).as_str().into())));
    let weights = files.each_ref().map(StageFile::weights);
    let tensors: Vec<OutgoingTensor<'_>> = weights
        .iter()
        .flat_map(|weights| weights.paths().map(|path| (path, weights.get(path).unwrap().clone())))
        .map(|(path, tensor)| OutgoingTensor::new(path, tensor))
        .collect();
    let path = std::env::temp_dir().join(format!("cutout-flat-{}.safetensors", std::process::id()));
    write_safetensors(&path, &tensors, &metadata).unwrap();
    path
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
    let path = checkpoint();
    let sam = Sam::open(&path).unwrap();
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
    std::fs::remove_file(path).unwrap();
    let (Some(early), Some(late)) = (early, resident()) else {
        eprintln!("skipped: this system does not tell how much memory is resident");
        return;
    };
    assert!(late < 1.05 * early, "{late} KiB at the end, {early} KiB at frame 100");
}
