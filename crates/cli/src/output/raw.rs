//! The model's own tensors, for researchers and for comparison with other implementations. The names are a contract.

use std::path::Path;

use anyhow::Result;
use cutout_imaging::{Size, Threshold};
use cutout_sam::{Detection, Masks, Scene, Segment};
use cutout_tensor::Tensor;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use crate::interrupt;

/// Writes `image_embedding [1, width, grid, grid]`, `low_res_logits [prompts, masks, h, w]`, `iou [prompts, masks]`,
/// `object_score [prompts]` where the model has one, and `masks [prompts, masks, height, width]` as u8 at the size of
/// the picture.
pub(crate) fn write_raw(path: &Path, scene: &Scene, answers: &[Masks]) -> Result<()> {
    interrupt::writes_beside(path);
    let prompts = answers.len();
    let masks = answers.first().map_or(0, Masks::len);
    let segments: Vec<&Segment> = answers.iter().flat_map(Masks::iter).collect();
    let side = segments.first().map_or(0, |segment| segment.logits().shape()[0]);
    let mut logits = Vec::new();
    for segment in &segments {
        logits.extend(segment.logits().to_vec::<f32>()?);
    }
    let iou: Vec<f32> = segments.iter().map(|segment| segment.iou()).collect();
    let mut tensors = vec![
        OutgoingTensor::new("image_embedding", scene.image_embedding()?),
        OutgoingTensor::new(
            "low_res_logits",
            Tensor::from_vec([prompts, masks, side, side], logits)?,
        ),
        OutgoingTensor::new("iou", Tensor::from_vec([prompts, masks], iou)?),
        OutgoingTensor::new("masks", pixels(&segments, [prompts, masks], scene.size())?),
    ];
    let best = answers.iter().map(|masks| masks.best().object_score());
    if let Some(scores) = best.collect::<Option<Vec<f32>>>() {
        tensors.push(OutgoingTensor::new("object_score", Tensor::from_vec([prompts], scores)?));
    }
    Ok(write_safetensors(path, &tensors, &Metadata::new())?)
}

/// Writes `pred_logits [queries]`, `presence_logit [1]`, `pred_boxes [queries, 4]` (left, top, right, bottom, in 0..1),
/// `pred_masks [queries, h, w]` and `semantic [1, h, w]` of one phrase; of several, each name has the phrase's number in
/// front, from `0/pred_logits` on. The metadata has the phrases.
pub(crate) fn write_raw_detections(path: &Path, detections: &[Detection]) -> Result<()> {
    interrupt::writes_beside(path);
    let (mut tensors, mut metadata) = (Vec::new(), Metadata::new());
    for (index, detection) in detections.iter().enumerate() {
        let front = if detections.len() > 1 { format!("{index}/") } else { String::new() };
        let parts = [
            ("pred_logits", detection.pred_logits()),
            ("presence_logit", detection.presence_logit()),
            ("pred_boxes", detection.pred_boxes()),
            ("pred_masks", detection.pred_masks()),
            ("semantic", detection.semantic()),
        ];
        for (name, tensor) in parts {
            tensors.push(OutgoingTensor::new(format!("{front}{name}"), tensor.clone()));
        }
        if let Some(phrase) = detection.phrase() {
            metadata.insert(format!("{front}phrase"), phrase.into());
        }
    }
    Ok(write_safetensors(path, &tensors, &metadata)?)
}

/// The masks at the size of the picture, 0 or 1.
fn pixels(segments: &[&Segment], [prompts, masks]: [usize; 2], size: Size) -> Result<Tensor> {
    let Size { width, height } = size;
    let mut pixels: Vec<u8> = Vec::with_capacity(segments.len() * size.pixels(1)?);
    for segment in segments {
        let threshold = Threshold::default().value;
        segment.for_each_row(|_, row| {
            pixels.extend(row.iter().map(|value| u8::from(*value > threshold)));
        })?;
    }
    Ok(Tensor::from_vec([prompts, masks, height, width], pixels)?)
}
