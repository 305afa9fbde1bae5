//! The profile for 8-bit integers that suits a model: what costs too much there stays in bf16.

use std::collections::BTreeMap;
use std::sync::Arc;

use cutout_graph::{Precision, Profile, StoredProfile, Weights};
use cutout_imaging::Image;
use cutout_weights::Checkpoint;

use crate::device::{self, DeviceError, Opened, settled_profile};
use crate::loss::{Loss, LossError, SceneAnswers};
use crate::model::config::ModelConfig;
use crate::model::load::load;
use crate::sam::{Sam, SamError};

/// Least mean IoU of masks in int8 with those in `f32`: a model that is below it keeps its worst parts in bf16.
pub const LEAST_INT8_IOU: f64 = 0.98;

/// Most groups of layers that are tried alone. Neighbouring groups of larger models are tried together.
const MOST_GROUPS: usize = 24;

/// Image encoders, by prefix of weight paths. Only what is in them can be told apart by the features of a picture.
const ENCODERS: [&str; 2] = ["image_encoder", "detector.backbone.vision_backbone"];

/// A profile for int8, and what it was measured to cost.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredProfile {
    /// The profile.
    pub profile: StoredProfile,
    /// Groups of layers that it keeps in bf16, the worst first.
    pub kept: Vec<String>,
    /// Mean IoU with the masks of `f32` when all layers are in int8.
    pub plain_iou: f64,
    /// The same with this profile.
    pub iou: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The model cannot be opened.
    #[error(transparent)]
    Sam(#[from] SamError),
    /// The model cannot answer, or answers cannot be compared.
    #[error(transparent)]
    Loss(#[from] LossError),
}

impl MeasuredProfile {
    /// Measures what int8 costs the model of a checkpoint on pictures, beside its answers in `f32`. If the masks are worse than
    /// [`LEAST_INT8_IOU`], each group of layers of the image encoder is tried alone in int8, and as many of the worst as it takes
    /// are kept in bf16. `base` has the device and the threads. `step` is called with the runs that are done and their number.
    ///
    /// `None` for a model that answers no clicks: there are no masks to compare.
    pub fn of(
        checkpoint: &Checkpoint,
        pictures: &[Image],
        base: &Profile,
        step: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<MeasuredProfile>, MeasureError> {
        let mut bench = Bench::open(checkpoint, pictures, base)?;
        let plain = bench.stored(&[]);
        let Some(plain_iou) = bench.iou(&plain)? else { return Ok(None) };
        if plain_iou >= LEAST_INT8_IOU {
            let kept = Vec::new();
            return Ok(Some(MeasuredProfile { profile: plain, kept, plain_iou, iou: plain_iou }));
        }
        let groups = bench.worst_first(step)?;
        // With none of them kept the bound is not met. Keeping more costs less, so that halving finds how many it takes.
        let (mut too_few, mut enough) = (0, groups.len());
        let mut found = None;
        while enough - too_few > 1 {
            let count = usize::midpoint(too_few, enough);
            let profile = bench.stored(&groups[..count]);
            let iou = bench.iou(&profile)?.unwrap_or(0.0);
            if iou >= LEAST_INT8_IOU {
                (enough, found) = (count, Some((profile, iou)));
            } else {
                too_few = count;
            }
        }
        let (profile, iou) = match found {
            Some(found) => found,
            None => {
                let profile = bench.stored(&groups[..enough]);
                let iou = bench.iou(&profile)?.unwrap_or(0.0);
                (profile, iou)
            }
        };
        let kept = groups[..enough].concat();
        Ok(Some(MeasuredProfile { profile, kept, plain_iou, iou }))
    }

    /// The text that a file carries.
    pub fn to_text(&self) -> String {
        let MeasuredProfile { profile, kept, plain_iou, iou } = self;
        let kept = match kept.len() {
            0 => String::new(),
            count => format!(" (without keeping {count} groups in bf16: {plain_iou:.4})"),
        };
        let version = env!("CARGO_PKG_VERSION");
        let comment = format!(
            "measured by cutout {version}: mean IoU of masks in int8 with those in f32 {iou:.4}{kept}; at least {LEAST_INT8_IOU} is aimed at"
        );
        profile.to_text(&comment)
    }
}

/// One model that is opened with one profile after the other. All share its packed weights.
struct Bench<'a> {
    checkpoint: &'a Checkpoint,
    pictures: &'a [Image],
    base: &'a Profile,
    config: ModelConfig,
    weights: Arc<Weights>,
    /// The answers in `f32`.
    expected: Vec<SceneAnswers>,
}

impl<'a> Bench<'a> {
    fn open(
        checkpoint: &'a Checkpoint,
        pictures: &'a [Image],
        base: &'a Profile,
    ) -> Result<Self, MeasureError> {
        let (config, weights) = load(checkpoint).map_err(SamError::from)?;
        let weights = Arc::new(weights);
        let mut bench = Bench { checkpoint, pictures, base, config, weights, expected: Vec::new() };
        bench.expected = bench.answers(Precision::F32, BTreeMap::new())?;
        Ok(bench)
    }

    /// The model in a precision, with these parts in another.
    fn sam(
        &self,
        precision: Precision,
        parts: BTreeMap<String, Precision>,
    ) -> Result<Sam, SamError> {
        let profile = Profile { precision, parts, ..self.base.clone() };
        let opened: Result<Opened, DeviceError> = device::open(profile);
        Sam::member(self.checkpoint, &self.config, &self.weights, opened?)
    }

    fn answers(
        &self,
        precision: Precision,
        parts: BTreeMap<String, Precision>,
    ) -> Result<Vec<SceneAnswers>, MeasureError> {
        let sam = self.sam(precision, parts)?;
        let mut answers = Vec::new();
        for picture in self.pictures {
            let scene = sam.embed(picture).map_err(LossError::from)?;
            answers.push(SceneAnswers::of(&scene, &[])?);
        }
        Ok(answers)
    }

    /// Mean IoU of the masks of a profile with those in `f32`.
    fn iou(&self, profile: &StoredProfile) -> Result<Option<f64>, MeasureError> {
        let mut loss = Loss::default();
        let answers = self.answers(profile.precision, profile.parts.clone())?;
        for (found, expected) in answers.iter().zip(&self.expected) {
            loss.add(found, expected)?;
        }
        Ok(loss.mask_iou())
    }

    /// The profile that keeps these groups in bf16, and in `f32` what always is.
    fn stored(&self, kept: &[Vec<String>]) -> StoredProfile {
        let int8 = Profile { precision: Precision::Int8, ..Profile::default() };
        let mut parts = settled_profile(int8, false).parts;
        let has = |part: &str| {
            let inside =
                |path: &str| path.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
            self.weights.paths().any(inside)
        };
        parts.retain(|part, _| has(part));
        parts.extend(kept.iter().flatten().map(|group| (group.clone(), Precision::Bf16)));
        StoredProfile { precision: Precision::Int8, parts }
    }

    /// The groups of layers, that which costs most first: each is tried alone in int8, by the features of the first picture.
    fn worst_first(
        &mut self,
        step: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Vec<String>>, MeasureError> {
        let groups = groups(&self.weights, &self.stored(&[]));
        let count = groups.len();
        let mut errors = Vec::with_capacity(count);
        for (done, group) in groups.into_iter().enumerate() {
            step(done, count);
            let parts = group.iter().map(|name| (name.clone(), Precision::Int8)).collect();
            let sam = self.sam(Precision::F32, parts)?;
            let first = &self.pictures[..self.pictures.len().min(1)];
            let scenes = sam.embed_all(first).map_err(LossError::from)?;
            let mut loss = Loss::default();
            for (scene, expected) in scenes.iter().zip(&self.expected) {
                loss.add_features(scene, expected)?;
            }
            errors.push((loss.encoder_error().unwrap_or(0.0), group));
        }
        step(count, count);
        errors.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        Ok(errors.into_iter().map(|(_, group)| group).collect())
    }
}

/// The groups of layers of image encoders that a profile runs in int8: blocks, neighbours together if there are many.
fn groups(weights: &Weights, profile: &StoredProfile) -> Vec<Vec<String>> {
    let mut all = Profile { precision: profile.precision, ..Profile::default() };
    profile.complete(&mut all);
    let mut names: BTreeMap<(String, usize), String> = BTreeMap::new();
    for path in weights.paths() {
        let is_matrix = weights.get(path).is_some_and(|weight| weight.ty().shape.rank() == 2);
        let is_inside = ENCODERS.iter().any(|part| path.starts_with(part));
        if is_matrix && is_inside && all.precision_of(path) == Precision::Int8 {
            let (before, number, name) = group_of(path);
            names.insert((before.to_owned(), number), name.to_owned());
        }
    }
    let names: Vec<String> = names.into_values().collect();
    let together = names.len().div_ceil(MOST_GROUPS).max(1);
    names.chunks(together).map(<[String]>::to_vec).collect()
}

/// The group of a weight: its path up to the first number, which is that of a block; without a number the layer. Also what is before
/// the number, and the number.
fn group_of(path: &str) -> (&str, usize, &str) {
    let mut start = 0;
    for component in path.split('.') {
        let end = start + component.len();
        if let Ok(number) = component.parse() {
            return (&path[..start], number, &path[..end]);
        }
        start = end + 1;
    }
    let layer = path.rsplit_once('.').map_or(path, |(layer, _)| layer);
    (layer, 0, layer)
}

#[cfg(test)]
mod tests {
    use cutout_tensor::Tensor;

    use super::*;

    #[test]
    fn groups_are_blocks_in_their_order() {
        let weight = |path: String, shape: &[usize]| {
            let count = shape.iter().product();
            (path, Tensor::from_vec(shape, vec![0.5f32; count]).unwrap())
        };
        let blocks = |count: usize| {
            let paths = (0..count).flat_map(|block| {
                ["qkv.weight", "proj.weight"]
                    .map(|name| format!("image_encoder.blocks.{block}.{name}"))
            });
            let matrices = paths.map(|path| weight(path, &[2, 2]));
            let others = [
                weight("image_encoder.blocks.0.bias".to_owned(), &[2]),
                weight("image_encoder.patch_embed.proj.weight".to_owned(), &[2, 2]),
                weight("image_encoder.neck.weight".to_owned(), &[2, 2]),
                weight("mask_decoder.lin.weight".to_owned(), &[2, 2]),
            ];
            let weights = Weights::new(matrices.chain(others).collect());
            let parts = BTreeMap::from([("image_encoder.patch_embed".to_owned(), Precision::F32)]);
            groups(&weights, &StoredProfile { precision: Precision::Int8, parts })
        };
        let names =
            |groups: &[Vec<String>]| groups.iter().map(|group| group.join(" ")).collect::<Vec<_>>();
        let few = names(&blocks(12));
        assert_eq!(few.len(), 13);
        assert_eq!(few[2], "image_encoder.blocks.2");
        assert_eq!(few[11], "image_encoder.blocks.11");
        assert_eq!(few[12], "image_encoder.neck");
        let many = names(&blocks(40));
        assert!(many.len() <= MOST_GROUPS);
        assert_eq!(many[1], "image_encoder.blocks.2 image_encoder.blocks.3");
    }
}
