//! The model's output tensors, for research and comparison with other implementations. The names are stable.

use std::path::Path;

use anyhow::{Context, Result};
use cutout_imaging::{Size, Threshold};
use cutout_sam::{Masks, RawDetections, Scene, Segment};
use cutout_tensor::{Tensor, TensorType, memory};
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors, write_safetensors_in_turn};

/// Writes `image_embedding [1, width, grid, grid]`, `low_res_logits [prompts, masks, h, w]`, `iou [prompts, masks]`,
/// `object_score [prompts]` if the model predicts it, and `masks [prompts, masks, height, width]` as u8 at the size of the
/// picture.
pub(crate) fn write_raw(path: &Path, scene: &Scene, answers: &[Masks]) -> Result<()> {
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
/// `pred_masks [queries, h, w]` and `semantic [1, h, w]` of one phrase. With several phrases, each name is prefixed with the
/// index of the phrase: `0/pred_logits`. The metadata holds the phrases.
///
/// The tensors of one phrase are written before the next phrase is processed, so only one set is in memory.
pub(crate) fn write_raw_detections(
    path: &Path,
    phrases: &[String],
    mut detections: impl Iterator<Item = Result<RawDetections>>,
) -> Result<()> {
    // A query with exemplars only counts as one phrase. All phrases give tensors of the same shapes.
    let count = phrases.len().max(1);
    let first = detections.next().context("the query has no phrase and no exemplar")??;
    let front = |index: usize| if count > 1 { format!("{index}/") } else { String::new() };
    let announce = |index: usize| {
        tensors(&first).map(|(name, tensor)| (front(index) + name, tensor.ty().clone()))
    };
    let announced: Vec<(String, TensorType)> = (0..count).flat_map(announce).collect();
    let named =
        |(index, phrase): (usize, &String)| (front(index) + "phrase", phrase.as_str().into());
    let metadata: Metadata = phrases.iter().enumerate().map(named).collect();
    let each = std::iter::once(Ok(first)).chain(detections).flat_map(|detection| match detection {
        Ok(detection) => tensors(&detection).map(|(_, tensor)| Ok(tensor.clone())).into(),
        Err(error) => vec![Err(error)],
    });
    write_safetensors_in_turn(path, &announced, &metadata, each)
}

fn tensors(detection: &RawDetections) -> [(&'static str, &Tensor); 5] {
    [
        ("pred_logits", detection.pred_logits()),
        ("presence_logit", detection.presence_logit()),
        ("pred_boxes", detection.pred_boxes()),
        ("pred_masks", detection.pred_masks()),
        ("semantic", detection.semantic()),
    ]
}

/// The masks at the size of the picture, u8 0 or 1.
fn pixels(segments: &[&Segment], [prompts, masks]: [usize; 2], size: Size) -> Result<Tensor> {
    let Size { width, height } = size;
    let values = segments.len().saturating_mul(size.pixels(1)?);
    let mut pixels: Vec<u8> = memory::with_capacity(values)?;
    for segment in segments {
        let threshold = Threshold::default().value;
        segment.for_each_row(|_, row| {
            pixels.extend(row.iter().map(|value| u8::from(*value > threshold)));
        })?;
    }
    Ok(Tensor::from_vec([prompts, masks, height, width], pixels)?)
}
