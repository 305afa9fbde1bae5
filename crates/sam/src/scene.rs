//! A picture that was embedded once and can be asked many times.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cutout_imaging::{ImageError, Mapping, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};
use cutout_weights::{Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError};

use crate::holes::fill_holes;
use crate::masks::{Masks, Segment};
use crate::network::{Decoded, Embedding, PromptBatch};
use crate::programs::ModelError;
use crate::prompt::{Prompt, PromptError};
use crate::sam::Sam;

/// Prompts decoded at once at most. More would cost memory (each carries its own copy of the image through the decoder) and
/// gain nothing: the products are as large as they need to be.
pub(crate) const MOST_PROMPTS: usize = 16;

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
    /// The file is something else.
    #[error("{file}: not a scene: {reason}")]
    NotAScene {
        /// The file.
        file: String,
        /// What is wrong or missing.
        reason: String,
    },
    /// The scene belongs to another model.
    #[error("{file}: made with {made_with}, which is not the model that is open ({open})")]
    OtherModel {
        /// The file.
        file: String,
        /// The model that made it.
        made_with: String,
        /// The model it was to be used with.
        open: String,
    },
    /// The model cannot take the embedding up.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The picture's size cannot be.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// An embedded picture. Cloning it is cheap: clones share everything.
#[derive(Clone)]
pub struct Scene {
    sam: Sam,
    embedding: Arc<Embedding>,
    mapping: Mapping,
    upsampler: Arc<Upsampler>,
}

impl Scene {
    pub(crate) fn new(
        sam: Sam,
        embedding: Embedding,
        mapping: Mapping,
    ) -> Result<Self, ImageError> {
        let upsampler = Arc::new(sam.network().upsampler(&mapping)?);
        Ok(Scene { sam, embedding: Arc::new(embedding), mapping, upsampler })
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.mapping.original
    }

    /// The model that made the scene.
    pub fn sam(&self) -> &Sam {
        &self.sam
    }

    /// The features the mask decoder starts from, `f32[1, width, grid, grid]` as in Meta's code.
    pub fn image_embedding(&self) -> Result<Tensor, ModelError> {
        let embedding = self.sam.network().image_embedding(&self.embedding)?;
        Ok(embedding.permute(&[0, 3, 1, 2])?)
    }

    /// The masks of one prompt.
    pub fn segment(&self, prompt: &Prompt) -> Result<Masks, SegmentError> {
        let mut answers = self.segment_all(std::slice::from_ref(prompt))?;
        Ok(answers.pop().expect("one prompt has one answer"))
    }

    /// The masks of many prompts, in their order. Prompts with the same number of points and boxes are decoded together, and
    /// none before all are known to be right ([`Sam::check_prompt`]).
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
        for members in groups.iter().flat_map(|members| members.chunks(MOST_PROMPTS)) {
            let batch: Vec<&Prompt> = members.iter().map(|&index| &prompts[index]).collect();
            for (&index, masks) in members.iter().zip(self.segment_batch(&batch)?) {
                answers[index] = Some(masks);
            }
        }
        Ok(answers.into_iter().map(|masks| masks.expect("each prompt is in one batch")).collect())
    }

    /// The masks of prompts of one shape, decoded at once.
    fn segment_batch(&self, prompts: &[&Prompt]) -> Result<Vec<Masks>, SegmentError> {
        let decoded = self.decode(prompts)?;
        let answer = |(index, prompt): (usize, &&Prompt)| self.answer(&decoded, index, prompt);
        Ok(prompts.iter().enumerate().map(answer).collect::<Result<_, TensorError>>()?)
    }

    /// What the decoder gives for prompts of one shape, at most [`MOST_PROMPTS`] of them.
    pub(crate) fn decode(&self, prompts: &[&Prompt]) -> Result<Decoded, SegmentError> {
        let network = self.sam.network();
        let batch =
            PromptBatch::of(prompts, &self.mapping, network.token_order(), network.mask_side())?;
        Ok(network.decode(&self.embedding, &batch)?)
    }

    /// The way from the decoder's masks to the picture.
    pub(crate) fn upsampler(&self) -> &Upsampler {
        &self.upsampler
    }

    /// The same, to keep.
    pub(crate) fn shared_upsampler(&self) -> Arc<Upsampler> {
        Arc::clone(&self.upsampler)
    }

    pub(crate) fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    /// The answer to prompt number `index` of a batch.
    fn answer(
        &self,
        decoded: &Decoded,
        index: usize,
        prompt: &Prompt,
    ) -> Result<Masks, TensorError> {
        let network = self.sam.network();
        let side = network.mask_side();
        let chosen = network.choose(decoded, index, prompt.wanted())?;
        let iou = decoded.iou.slice(0, index..index + 1)?.to_vec::<f32>()?;
        let object_score = match &decoded.object_score {
            Some(scores) => scores.slice(0, index..index + 1)?.to_vec::<f32>()?.first().copied(),
            None => None,
        };
        let logits = decoded.logits.slice(0, index..index + 1)?;
        let segment = |token: usize| {
            let logits = logits.slice(1, token..token + 1)?.reshape([side, side])?;
            let feedback = network.limited(&logits)?;
            let logits = filled(logits, network.largest_hole())?;
            let upsampler = Arc::clone(&self.upsampler);
            Ok(Segment { logits, feedback, iou: iou[token], object_score, upsampler })
        };
        let tokens = chosen.first..chosen.first + chosen.count;
        Ok(Masks { candidates: tokens.map(segment).collect::<Result<_, TensorError>>()? })
    }

    /// Writes the scene to a file, as safetensors: opening it again with [`Sam::load_scene`] spares the encoder.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SceneFileError> {
        let tensors: Vec<OutgoingTensor<'_>> = self
            .embedding
            .features
            .iter()
            .map(|(name, tensor)| OutgoingTensor::new(name.clone(), tensor.clone()))
            .collect();
        let Size { width, height } = self.size();
        let text = |value: String| MetadataValue::Text(value);
        let metadata = Metadata::from([
            (WIDTH.to_owned(), text(width.to_string())),
            (HEIGHT.to_owned(), text(height.to_string())),
            (MODEL.to_owned(), text(self.sam.description())),
            (FINGERPRINT.to_owned(), text(format!("{:016x}", self.sam.fingerprint()))),
        ]);
        Ok(cutout_weights::write_safetensors(path, &tensors, &metadata)?)
    }

    /// Reads a scene that `sam` made.
    pub(crate) fn load(sam: &Sam, path: &Path) -> Result<Self, SceneFileError> {
        let checkpoint = Checkpoint::open(path)?;
        let file = checkpoint.file().to_owned();
        let text = |key: &str| checkpoint.metadata().get(key).and_then(MetadataValue::as_text);
        let wrong = |reason: String| SceneFileError::NotAScene { file: file.clone(), reason };
        let missing = |key: &str| wrong(format!("{key} is missing"));
        let length = |key: &str| {
            let found = text(key).ok_or_else(|| missing(key))?;
            found.parse::<usize>().map_err(|_| wrong(format!("{key} is {found:?}")))
        };
        let size = Size::new(length(WIDTH)?, length(HEIGHT)?);
        let fingerprint = text(FINGERPRINT).ok_or_else(|| missing(FINGERPRINT))?;
        if fingerprint != format!("{:016x}", sam.fingerprint()) {
            let made_with = text(MODEL).unwrap_or("an unknown model").to_owned();
            return Err(SceneFileError::OtherModel { file, made_with, open: sam.description() });
        }
        let features = checkpoint
            .tensors()
            .iter()
            .map(|info| Ok((info.name.clone(), checkpoint.tensor(&info.name)?)))
            .collect::<Result<Vec<_>, WeightsError>>()?;
        let embedding = sam.network().with_features(features)?;
        Ok(Scene::new(sam.clone(), embedding, sam.network().preprocess().mapping(size)?)?)
    }
}

/// Logits `f32[side, side]` without holes of so many pixels or fewer.
fn filled(logits: Tensor, area: usize) -> Result<Tensor, TensorError> {
    if area == 0 {
        return Ok(logits);
    }
    let shape = logits.shape().clone();
    let mut values = logits.to_vec::<f32>()?;
    fill_holes(&mut values, shape[0], area, FILLED);
    Tensor::from_vec::<f32>(shape, values)
}

const WIDTH: &str = "cutout.scene.width";
const HEIGHT: &str = "cutout.scene.height";
const MODEL: &str = "cutout.scene.model";
const FINGERPRINT: &str = "cutout.scene.fingerprint";
