//! Every object that a phrase or examples describe: SAM 3.

mod answer;
mod question;

use cutout_imaging::{ImageError, Size};
use cutout_tensor::TensorError;

pub use answer::{Answer, Detection, Found, Instance};
pub use question::{Find, VISUAL};

use crate::network::{ExemplarBatch, Network, Sam3};
use crate::programs::ModelError;
use crate::prompt::PromptError;
use crate::sam::Sam;
use crate::scene::Scene;
use crate::tokenizer::PhraseError;

/// Why nothing can be looked for.
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
    /// Nothing was asked.
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
    /// The checkpoint lacks what understands points.
    #[error("this checkpoint takes boxes as exemplars and no points; Meta's sam3.pt takes both")]
    NoPoints,
    /// A number that must lie between 0 and 1 does not.
    #[error("{what} must be between 0 and 1, not {value}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// What was given.
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
    /// Whether a question can be asked about a picture of this size: all that can be wrong with it is known before any
    /// picture is looked at.
    pub fn check_find(&self, find: &Find, size: Size) -> Result<(), FindError> {
        let network = self.finder()?;
        find.check(network.finder()?, size)?;
        find.read(network).map(drop)
    }

    fn finder(&self) -> Result<&Sam3, FindError> {
        match self.network() {
            Network::Sam1(_) | Network::Sam2(_) => {
                Err(FindError::NotAFinder { model: self.description() })
            }
            Network::Sam3(network) => Ok(network),
        }
    }
}

impl Scene {
    /// Every object that is asked for: a phrase, several phrases, or a [`Find`] with exemplars and options.
    ///
    /// What depends on the picture alone is computed the first time and kept with the scene; phrases are kept with the
    /// model. A later question costs a small part of the first.
    pub fn find(&self, what: impl Into<Find>) -> Result<Found, FindError> {
        let mut answers = Vec::new();
        self.find_each(what, |answer| answers.push(answer))?;
        Ok(Found { answers })
    }

    /// The same, phrase by phrase: each answer is handed over before the next phrase is looked for.
    pub fn find_each(
        &self,
        what: impl Into<Find>,
        mut receive: impl FnMut(Answer),
    ) -> Result<(), FindError> {
        let find = what.into();
        for detection in self.detections(&find)? {
            receive(detection?.answer(&find)?);
        }
        Ok(())
    }

    /// The model's own numbers for all phrases. At the published size they take 66 MB for each phrase, all at once;
    /// [`Scene::detections`] gives them one by one.
    pub fn detect(&self, find: &Find) -> Result<Vec<Detection>, FindError> {
        self.detections(find)?.collect()
    }

    /// The model's own numbers for each phrase, of which [`Detection::answer`] makes what [`Scene::find`] gives. A phrase is
    /// looked for when its numbers are asked for.
    pub fn detections<'s>(
        &'s self,
        find: &Find,
    ) -> Result<impl ExactSizeIterator<Item = Result<Detection, FindError>> + use<'s>, FindError>
    {
        let network = self.sam().finder()?;
        let exemplars = find.check(network.finder()?, self.size())?;
        Ok(find.read(network)?.into_iter().map(move |phrase| {
            let detected = network.detect(self.embedding(), &phrase.tokens, &exemplars)?;
            Ok(Detection::new(phrase, detected, self))
        }))
    }
}
