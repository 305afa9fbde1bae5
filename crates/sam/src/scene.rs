//! Scenes: embedded pictures that answer any number of prompts.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cutout_graph::{DeviceValue, Ports, RunError, flatten};
use cutout_imaging::{Image, ImageError, Mapping, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};
use cutout_weights::{Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError};

use crate::masks::{Masks, Segment, fill_holes};
use crate::model::ModelError;
use crate::model::part::{Stages, graph_of};
use crate::parts::{
    Answers, DecodeInputs, Encode, Encoded, FindFeatures, FindLevels, PrepareImage, PreparedImage,
};
use crate::prompt::{Candidates, Prompt, PromptBatch, PromptError};
use crate::sam::Sam;

/// The logit of a filled hole.
const FILLED: f32 = 10.0;

/// Why a scene cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The prompt is wrong.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The model fails.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The picture cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl From<TensorError> for SegmentError {
    fn from(error: TensorError) -> Self {
        SegmentError::Model(error.into())
    }
}

/// Why a scene cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SceneFileError {
    /// The file cannot be written or read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The file is not a scene.
    #[error("{file}: not a scene: {reason}")]
    NotAScene {
        /// The file.
        file: String,
        /// What is wrong or missing.
        reason: String,
    },
    /// The scene belongs to another model.
    #[error("{file}: {}", other_model(made_with, open))]
    OtherModel {
        /// The file.
        file: String,
        /// The model that made it.
        made_with: String,
        /// The model it was to be used with.
        open: String,
    },
    /// The model cannot take the features.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The size of the picture is invalid.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// An embedded picture. Cloning it is cheap: clones share everything.
#[derive(Clone)]
pub struct Scene {
    sam: Sam,
    features: Arc<SceneFeatures>,
    source: SourcePicture,
    upsampler: Arc<Upsampler>,
}

/// The picture that a scene was made from.
#[derive(Clone, Copy)]
pub(crate) struct SourcePicture {
    /// Where the picture is in the model's input.
    pub(crate) mapping: Mapping,
    /// [`Image::fingerprint`] of it.
    pub(crate) fingerprint: u64,
}

/// Features of a picture, on the device.
struct SceneFeatures {
    /// Outputs of the image encoder. The other fields are computed from them.
    encoded: Encoded<DeviceValue>,
    /// Inputs of the mask decoder, computed on first use.
    prepared: OnceLock<PreparedImage<DeviceValue>>,
    /// Inputs of the detector, computed on first use.
    find_levels: OnceLock<FindLevels<DeviceValue>>,
}

/// Decoded masks of a batch of prompts, fetched to the host.
pub(crate) struct AnsweredBatch {
    /// `f32[prompts, candidates, side, side]`.
    pub(crate) logits: Tensor,
    /// The logits in the form of a mask prompt.
    pub(crate) feedback: DeviceValue,
    /// Predicted IoU of all candidates of all prompts.
    pub(crate) iou: Vec<f32>,
    object_score: Option<Vec<f32>>,
    /// Number of masks of each prompt.
    pub(crate) candidates: usize,
}

impl Scene {
    pub(crate) fn new(
        sam: Sam,
        encoded: Encoded<DeviceValue>,
        source: SourcePicture,
    ) -> Result<Self, ImageError> {
        let upsampler = Arc::new(sam.upsampler(&source.mapping)?);
        let (prepared, find_levels) = (OnceLock::new(), OnceLock::new());
        let features = Arc::new(SceneFeatures { encoded, prepared, find_levels });
        Ok(Scene { sam, features, source, upsampler })
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.source.mapping.original
    }

    /// Whether the scene was made from this picture: same size and same pixels.
    pub fn is_of(&self, image: &Image) -> bool {
        self.size() == image.size() && self.source.fingerprint == image.fingerprint()
    }

    /// The model that made the scene.
    pub fn sam(&self) -> &Sam {
        &self.sam
    }

    /// Bytes of the features that are held for the picture, on the device.
    pub fn bytes(&self) -> usize {
        let SceneFeatures { encoded, prepared, find_levels } = &*self.features;
        let mut total = bytes_of::<Encoded<()>>(encoded.clone());
        total += prepared.get().cloned().map_or(0, bytes_of::<PreparedImage<()>>);
        total + find_levels.get().cloned().map_or(0, bytes_of::<FindLevels<()>>)
    }

    /// The features the mask decoder starts from, `f32[1, width, grid, grid]` as in Meta's code.
    pub fn image_embedding(&self) -> Result<Tensor, ModelError> {
        let embedding = self.prepared()?.embedding.fetch()?;
        Ok(embedding.permute(&[0, 3, 1, 2])?)
    }

    /// Inputs of the mask decoder that depend on the picture alone.
    fn prepared(&self) -> Result<&PreparedImage<DeviceValue>, ModelError> {
        let SceneFeatures { encoded, prepared, .. } = &*self.features;
        if let Some(known) = prepared.get() {
            return Ok(known);
        }
        // `level2` is read by tracking only.
        let features = Encoded { level2: None, ..encoded.clone() };
        let made = self.sam.model().run(&PrepareImage, features)?;
        Ok(prepared.get_or_init(|| made))
    }

    /// Inputs of the detector that depend on the picture alone.
    pub(crate) fn find_levels(&self) -> Result<&FindLevels<DeviceValue>, ModelError> {
        let SceneFeatures { encoded, find_levels, .. } = &*self.features;
        if let Some(known) = find_levels.get() {
            return Ok(known);
        }
        let made = self.sam.model().run(&FindFeatures, encoded.clone())?;
        Ok(find_levels.get_or_init(|| made))
    }

    /// The masks of one prompt.
    pub fn segment(&self, prompt: &Prompt) -> Result<Masks, SegmentError> {
        let mut answers = self.segment_all(std::slice::from_ref(prompt))?;
        Ok(answers.pop().expect("one prompt has one answer"))
    }

    /// The masks of many prompts, in their order. All prompts are checked first ([`Sam::check_prompt`]). Prompts with
    /// the same number of points and boxes are decoded in one batch.
    pub fn segment_all(&self, prompts: &[Prompt]) -> Result<Vec<Masks>, SegmentError> {
        prompts.iter().try_for_each(|prompt| self.sam.check_prompt(prompt, self.size()))?;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of = HashMap::new();
        for (index, prompt) in prompts.iter().enumerate() {
            let group = *group_of.entry(prompt.shape()).or_insert(groups.len());
            match groups.get_mut(group) {
                Some(members) => members.push(index),
                None => groups.push(vec![index]),
            }
        }
        let mut answers: Vec<Option<Masks>> = vec![None; prompts.len()];
        let at_once = self.sam.prompt_limit();
        for members in groups.iter().flat_map(|members| members.chunks(at_once)) {
            let batch: Vec<&Prompt> = members.iter().map(|&index| &prompts[index]).collect();
            for (&index, masks) in members.iter().zip(self.segment_batch(&batch)?) {
                answers[index] = Some(masks);
            }
        }
        Ok(answers.into_iter().map(|masks| masks.expect("each prompt is in one batch")).collect())
    }

    /// The masks of prompts of one shape, decoded at once.
    fn segment_batch(&self, prompts: &[&Prompt]) -> Result<Vec<Masks>, SegmentError> {
        let answered = self.answer(prompts)?;
        let feedback = answered.feedback.fetch().map_err(ModelError::from)?;
        let masks = |index| self.masks(&answered, &feedback, index);
        Ok((0..prompts.len()).map(masks).collect::<Result<_, TensorError>>()?)
    }

    /// The answers to prompts of one shape, at most [`Sam::prompt_limit`] of them.
    pub(crate) fn answer(&self, prompts: &[&Prompt]) -> Result<AnsweredBatch, SegmentError> {
        let model = self.sam.model();
        let (order, side) = (model.config().processing().token_order, model.config().mask_side());
        let batch = PromptBatch::of(prompts, &self.source.mapping, order, side)?;
        let wanted = prompts.first().map_or(Candidates::Three, |prompt| prompt.wanted());
        let part = batch.part(wanted);
        let image = self.prepared()?.clone();
        let unmasked = |value: DeviceValue| (!part.masks).then_some(value);
        let inputs = DecodeInputs {
            points: model.upload(&batch.points)?,
            kinds: model.upload(&batch.kinds)?,
            masks: batch.masks.as_ref().map(|masks| model.upload(masks)).transpose()?,
            embedding: part.masks.then_some(image.embedding),
            image: unmasked(image.image),
            positions: unmasked(image.positions),
            first: (!part.masks).then_some(image.first),
            level0: image.level0,
            level1: image.level1,
        };
        Ok(AnsweredBatch::fetch(model.run(&part, inputs)?)?)
    }

    /// Upsampler from low-resolution masks to the picture.
    pub(crate) fn upsampler(&self) -> &Arc<Upsampler> {
        &self.upsampler
    }

    /// The answer to prompt number `index` of a batch.
    fn masks(
        &self,
        answered: &AnsweredBatch,
        feedback: &Tensor,
        index: usize,
    ) -> Result<Masks, TensorError> {
        let config = self.sam.model().config();
        let (side, largest_hole) = (config.mask_side(), config.processing().largest_hole);
        let segment = |candidate: usize| {
            let of = |tensor: &Tensor| {
                let own = tensor.slice(0, index..index + 1)?.slice(1, candidate..candidate + 1)?;
                own.reshape([side, side])
            };
            Ok(Segment {
                logits: filled(of(&answered.logits)?, largest_hole)?,
                feedback: of(feedback)?,
                iou: answered.iou[index * answered.candidates + candidate],
                object_score: answered.object_score.as_ref().map(|scores| scores[index]),
                upsampler: Arc::clone(&self.upsampler),
            })
        };
        let candidates =
            (0..answered.candidates).map(segment).collect::<Result<_, TensorError>>()?;
        Ok(Masks { candidates })
    }

    /// Writes the features to a safetensors file. [`Sam::load_scene`] reads it without running the encoder.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SceneFileError> {
        let mut tensors: Vec<OutgoingTensor<'_>> = Vec::new();
        Encoded::try_map(self.features.encoded.clone(), "", &mut |name, value| {
            tensors.push(OutgoingTensor::new(name, value.fetch()?));
            Ok::<(), RunError>(())
        })
        .map_err(ModelError::from)?;
        let Size { width, height } = self.size();
        let text = |value: String| MetadataValue::Text(value);
        let metadata = Metadata::from([
            (WIDTH.to_owned(), text(width.to_string())),
            (HEIGHT.to_owned(), text(height.to_string())),
            (PIXELS.to_owned(), text(format!("{:016x}", self.source.fingerprint))),
            (MODEL.to_owned(), text(self.sam.description())),
            (FINGERPRINT.to_owned(), text(format!("{:016x}", self.sam.fingerprint()))),
        ]);
        Ok(cutout_weights::write_safetensors(path, &tensors, &metadata)?)
    }

    /// Reads a scene that `sam` made.
    pub(crate) fn load(sam: &Sam, checkpoint: &Checkpoint) -> Result<Self, SceneFileError> {
        let file = checkpoint.file().to_owned();
        let text = |key: &str| checkpoint.metadata().get(key).and_then(MetadataValue::as_text);
        let wrong = |reason: String| SceneFileError::NotAScene { file: file.clone(), reason };
        let missing = |key: &str| wrong(format!("{key} is missing"));
        let length = |key: &str| {
            let found = text(key).ok_or_else(|| missing(key))?;
            found.parse::<usize>().map_err(|_| wrong(format!("{key} is {found:?}")))
        };
        let size = Size::new(length(WIDTH)?, length(HEIGHT)?);
        let pixels = text(PIXELS).ok_or_else(|| wrong(NO_PIXELS.to_owned()))?;
        let pixels = u64::from_str_radix(pixels, 16)
            .map_err(|_| wrong(format!("{PIXELS} is {pixels:?}")))?;
        let fingerprint = text(FINGERPRINT).ok_or_else(|| missing(FINGERPRINT))?;
        if fingerprint != format!("{:016x}", sam.fingerprint()) {
            let made_with = text(MODEL).unwrap_or("an unknown model").to_owned();
            return Err(SceneFileError::OtherModel { file, made_with, open: sam.description() });
        }
        let shapes = graph_of(&Encode { pictures: 1 }, sam.model().config(), Stages::Hidden)?;
        let wanted = shapes.1.pictures.into_iter().next().unwrap_or_else(Encoded::none);
        let encoded = Encoded::try_map(wanted, "", &mut |name, _| {
            checkpoint.info(name).ok_or_else(|| missing(name))?;
            let tensor = checkpoint.tensor(name)?;
            tensor.expect_finite().map_err(|error| wrong(format!("{name}: {error}")))?;
            Ok::<_, SceneFileError>(sam.model().upload(&tensor)?)
        })?;
        let mapping = sam.preprocessing().mapping(size)?;
        Ok(Scene::new(sam.clone(), encoded, SourcePicture { mapping, fingerprint: pixels })?)
    }
}

impl AnsweredBatch {
    /// Fetches logits and scores; the feedback stays on the device.
    fn fetch(answers: Answers<DeviceValue>) -> Result<Self, ModelError> {
        let iou = answers.iou.fetch()?;
        let scores = answers.object_score.map(|score| score.fetch()).transpose()?;
        Ok(AnsweredBatch {
            logits: answers.logits.fetch()?,
            feedback: answers.feedback,
            candidates: iou.shape()[1],
            iou: finite(&iou)?,
            object_score: scores.map(|scores| finite(&scores)).transpose()?,
        })
    }

    /// The low-resolution logits of one candidate, `f32[1, 1, side, side]`.
    pub(crate) fn logits_of(&self, prompt: usize, candidate: usize) -> Result<Tensor, TensorError> {
        self.logits.slice(0, prompt..prompt + 1)?.slice(1, candidate..candidate + 1)
    }
}

/// Bytes of the values at all ports.
fn bytes_of<P: Ports>(values: P::Of<DeviceValue>) -> usize {
    flatten::<P, DeviceValue>(values).iter().map(|value| value.ty().bytes()).sum()
}

/// Why a scene does not fit the open model. Two models of one size have the same description.
fn other_model(made_with: &str, open: &str) -> String {
    if made_with == open {
        return format!("made with other weights of the same model ({open})");
    }
    format!("made with {made_with}, which is not the model that is open ({open})")
}

/// Scores of an answer. Weights that are finite can still multiply to more than a float holds.
pub(crate) fn finite(scores: &Tensor) -> Result<Vec<f32>, ModelError> {
    match scores.first_not_finite()? {
        Some((_, value)) => Err(ModelError::NotFinite(value)),
        None => Ok(scores.to_vec()?),
    }
}

/// Logits `f32[side, side]` with holes of at most `area` pixels filled.
fn filled(logits: Tensor, area: usize) -> Result<Tensor, TensorError> {
    if area == 0 {
        return Ok(logits);
    }
    let shape = logits.shape().clone();
    let mut values = logits.to_vec::<f32>()?;
    fill_holes(&mut values, shape[0], area, FILLED)?;
    Tensor::from_vec::<f32>(shape, values)
}

const WIDTH: &str = "cutout.scene.width";
const HEIGHT: &str = "cutout.scene.height";
const PIXELS: &str = "cutout.scene.pixels";
/// Scenes of earlier versions cannot be told from those of another picture of the same size.
const NO_PIXELS: &str =
    "it has no hash of the picture, as an earlier version wrote it; save it again";
const MODEL: &str = "cutout.scene.model";
const FINGERPRINT: &str = "cutout.scene.fingerprint";
