//! The profile for 8-bit integers that `convert` stores in a file.

use std::path::PathBuf;

use anyhow::Result;
use cutout_imaging::Size;
use cutout_sam::{LEAST_INT8_IOU, MeasuredProfile, Profile};
use cutout_weights::Checkpoint;

use crate::progress::Progress;
use crate::{picture, stdio};

/// Measures what int8 costs the model of a file, on pictures or a drawn one. `None` if there is nothing to store.
pub(super) fn measured(file: &Checkpoint, pictures: &[PathBuf]) -> Result<Option<String>> {
    let mut images = Vec::new();
    for path in pictures {
        images.push(picture::open(path)?);
    }
    if images.is_empty() {
        images.push(picture::drawn(Size::new(1200, 800), 0)?);
    }
    let progress = Progress::spinner("what int8 costs");
    let mut step = |done: usize, all: usize| {
        progress.set_length(all as u64);
        progress.set(done as u64);
        progress.say("layers in int8");
    };
    let measured = MeasuredProfile::of(file, &images, &Profile::default(), &mut step)?;
    drop(progress);
    let Some(measured) = measured else {
        stdio::note("the model answers no clicks: no profile for int8 is measured");
        return Ok(None);
    };
    let MeasuredProfile { kept, plain_iou, iou, .. } = &measured;
    if *iou < LEAST_INT8_IOU {
        stdio::warn(&format!(
            "masks in int8 have a mean IoU of {plain_iou:.4} with those in f32, and {iou:.4} with {} groups of layers in bf16; at least \
             {LEAST_INT8_IOU} is aimed at: no profile is stored",
            kept.len()
        ));
        return Ok(None);
    }
    if !kept.is_empty() {
        stdio::note(&format!(
            "int8 keeps {} in bf16: mean IoU with f32 {iou:.4} instead of {plain_iou:.4}",
            kept.join(", ")
        ));
    }
    Ok(Some(measured.to_text()))
}
