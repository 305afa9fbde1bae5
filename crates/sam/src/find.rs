//! Finding all objects of a phrase or of exemplars: SAM 3.

mod detections;
mod query;
mod sightings;

use cutout_graph::DeviceValue;
use cutout_imaging::{ImageError, Size};
use cutout_tensor::{Tensor, TensorError};

pub use detections::{Detection, Detections, Found, RawDetections};
pub use query::{Find, VISUAL};
pub(crate) use sightings::{QueryLogits, Sighting, Sightings};

use crate::bits::BitMask;
use crate::model::config::EncoderConfig;
use crate::model::tokenizer::{PhraseError, Tokens};
use crate::model::{Model, ModelError};
use crate::parts::{
    Detect, DetectInputs, EncodeExemplars, EncodeText, ExemplarInputs, FindLevels,
    LabelledCoordinates, TextInputs,
};
use crate::prompt::PromptError;
use crate::sam::Sam;
use crate::scene::Scene;
use query::{ExemplarBatch, Phrase};

/// Why a query cannot run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The model does not understand phrases.
    #[error(
        "{model} answers clicks, boxes and masks; finding objects by phrase or exemplar needs SAM 3"
    )]
    NotAFinder {
        /// The model.
        model: String,
    },
    /// The query is empty.
    #[error("there is no phrase and no exemplar to look for")]
    Nothing,
    /// A phrase cannot be read.
    #[error("{phrase:?}: {source}")]
    Phrase {
        /// The phrase, its beginning if it is long.
        phrase: String,
        /// What is wrong.
        source: PhraseError,
    },
    /// An exemplar is wrong.
    #[error("exemplar: {0}")]
    Exemplar(#[from] PromptError),
    /// The checkpoint has no weights for point exemplars.
    #[error("this checkpoint takes boxes as exemplars and no points; Meta's sam3.pt takes both")]
    NoPoints,
    /// A number is outside 0..1.
    #[error("{what} must be between 0 and 1, not {value}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The given value.
        value: f32,
    },
    /// The model fails.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Masks cannot be brought to the picture's size.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl From<TensorError> for FindError {
    fn from(error: TensorError) -> Self {
        FindError::Model(error.into())
    }
}

impl Sam {
    /// Checks a query against a picture of this size, before any picture is embedded.
    pub fn check_find(&self, find: &Find, size: Size) -> Result<(), FindError> {
        let model = self.finder()?;
        find.check(model.config().finder()?, size)?;
        find.read(model).map(drop)
    }

    /// Returns an error for a model of a family that does not find.
    pub(crate) fn check_finder(&self) -> Result<(), FindError> {
        self.finder().map(drop)
    }

    /// The model, if it is of a family that finds.
    fn finder(&self) -> Result<&Model, FindError> {
        match self.model().config().encoder {
            EncoderConfig::RotaryVit { .. } => Ok(self.model()),
            EncoderConfig::Vit { .. } | EncoderConfig::Hiera(_) => {
                Err(FindError::NotAFinder { model: self.description() })
            }
        }
    }
}

impl Scene {
    /// Finds all objects of a phrase, of several phrases, or of a [`Find`] with exemplars and options.
    ///
    /// Picture features are computed on the first query and cached in the scene; phrase features are cached in the
    /// model. Later queries are much cheaper than the first.
    pub fn find(&self, what: impl Into<Find>) -> Result<Found, FindError> {
        let mut phrases = Vec::new();
        self.find_each(what, |detections| phrases.push(detections))?;
        Ok(Found { phrases })
    }

    /// Calls `receive` with the detections of each phrase before the next phrase runs.
    pub fn find_each(
        &self,
        what: impl Into<Find>,
        mut receive: impl FnMut(Detections),
    ) -> Result<(), FindError> {
        let find = what.into();
        for detected in self.detected(&find)? {
            let (phrase, values) = detected?;
            receive(Detections::fetch(phrase, &values, self, &find)?);
        }
        Ok(())
    }

    /// Begins to look for the first phrase. Nothing is fetched.
    pub(crate) fn look_for(&self, find: Find) -> Result<Looking, FindError> {
        let (_, values) = self.detected(&find)?.next().ok_or(FindError::Nothing)??;
        Ok(Looking { values, find, size: self.size() })
    }

    /// Raw outputs of the detector for each phrase, computed as the iterator advances. [`RawDetections::select`] turns
    /// them into the result of [`Scene::find`]. At the published size they take 66 MB per phrase.
    pub fn raw_detections<'s>(
        &'s self,
        find: &Find,
    ) -> Result<impl ExactSizeIterator<Item = Result<RawDetections, FindError>> + use<'s>, FindError>
    {
        Ok(self.detected(find)?.map(|detected| {
            let (phrase, values) = detected?;
            Ok(RawDetections::fetch(phrase, values, self)?)
        }))
    }

    /// Runs the detector for each phrase as the iterator advances.
    fn detected<'s>(
        &'s self,
        find: &Find,
    ) -> Result<impl ExactSizeIterator<Item = Result<Detected, FindError>> + use<'s>, FindError>
    {
        let model = self.sam().finder()?;
        let exemplars = find.check(model.config().finder()?, self.size())?;
        Ok(find.read(model)?.into_iter().map(move |phrase| {
            let values = detect(model, self.find_levels()?, &phrase.tokens, &exemplars)?;
            Ok((phrase, values))
        }))
    }
}

/// A phrase and the outputs of the detector for it.
type Detected = (Phrase, crate::parts::RawDetections<DeviceValue>);

/// What the detector answers for a phrase, on the device.
pub(crate) struct Looking {
    values: crate::parts::RawDetections<DeviceValue>,
    find: Find,
    /// Size of the picture.
    size: Size,
}

impl Looking {
    /// The detections with the pixels of their masks, without what only answers need.
    pub(crate) fn fetch(&self) -> Result<Sightings<BitMask>, FindError> {
        Ok(Sightings::fetch(&self.values, &self.find, self.size)?)
    }

    /// The logits of a query's mask.
    pub(crate) fn logits(&self, query: usize) -> QueryLogits {
        QueryLogits { masks: self.values.masks.clone(), query }
    }
}

/// Runs the detector for a phrase and exemplars.
fn detect(
    model: &Model,
    levels: &FindLevels<DeviceValue>,
    tokens: &Tokens,
    exemplars: &ExemplarBatch,
) -> Result<crate::parts::RawDetections<DeviceValue>, ModelError> {
    let text = model.phrase(tokens, || encode_phrase(model, tokens))?;
    let exemplars = encode_exemplars(model, levels, exemplars)?;
    let part = Detect { text: text.ty().shape[1], exemplars: exemplars.ty().shape[1] };
    let FindLevels { level0, level1, fusion, .. } = levels.clone();
    model.run(&part, DetectInputs { level0, level1, fusion, text, exemplars })
}

/// The features of a phrase, `f32[1, kept, width]`.
fn encode_phrase(model: &Model, tokens: &Tokens) -> Result<DeviceValue, ModelError> {
    let Tokens { numbers, kept, .. } = tokens;
    let part = EncodeText { tokens: numbers.len(), kept: kept.len() };
    let inputs = TextInputs {
        tokens: model.upload(&Tensor::from_vec([part.tokens], numbers.clone())?)?,
        kept: model.upload(&Tensor::from_vec([part.kept], kept.clone())?)?,
    };
    Ok(model.run(&part, inputs)?.tokens)
}

/// The tokens of exemplars, `f32[1, tokens, width]`.
fn encode_exemplars(
    model: &Model,
    levels: &FindLevels<DeviceValue>,
    exemplars: &ExemplarBatch,
) -> Result<DeviceValue, ModelError> {
    let ExemplarBatch { boxes, box_labels, points, point_labels } = exemplars;
    if boxes.is_empty() && points.is_empty() {
        return Ok(levels.no_exemplars.clone());
    }
    let labelled = |coordinates: Vec<f32>, labels: &[i64]| -> Result<_, ModelError> {
        if labels.is_empty() {
            return Ok(None);
        }
        let shape = [labels.len(), coordinates.len() / labels.len()];
        Ok(Some(LabelledCoordinates {
            coordinates: model.upload(&Tensor::from_vec(shape, coordinates)?)?,
            labels: model.upload(&Tensor::from_vec([labels.len()], labels.to_vec())?)?,
        }))
    };
    let inputs = ExemplarInputs {
        level2: levels.level2.clone(),
        boxes: labelled(boxes.concat(), box_labels)?,
        points: labelled(points.concat(), point_labels)?,
    };
    let part = EncodeExemplars { boxes: boxes.len(), points: points.len() };
    Ok(model.run(&part, inputs)?.tokens)
}
