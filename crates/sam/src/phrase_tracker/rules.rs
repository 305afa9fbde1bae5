//! Rules by which the families follow phrases, besides the numbers of the options.

use super::options::PhraseOptions;
use crate::bits::Measure;
use crate::model::config::MemoryForm;
use crate::sam::Sam;

/// Rules of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PhraseRules {
    /// How much detections overlap each other and tracks.
    pub(super) measure: Measure,
    /// Whether a detection that starts a track needs the score for it while there are no tracks too.
    pub(super) always_needs_score: bool,
    /// Detections with their centre so near to the border of the picture, as a share of it, say nothing while there are tracks.
    pub(super) border: f32,
    /// Frames running on which detections show an object before it is told; 0 tells it at once.
    pub(super) confirmations: usize,
    /// Whether any two tracks with one detection are counted as duplicates, or the oldest with each of the others.
    pub(super) counts_all_pairs: bool,
    /// Whether a detection that renews a track also changes the mask that is told.
    pub(super) edits_masks: bool,
    /// Whether a track that ends gives way to any other.
    pub(super) ended_give_way: bool,
    /// Whether an empty mask is remembered as clearly empty if it is the only one.
    pub(super) clears_lone_masks: bool,
}

const SAM3: PhraseRules = PhraseRules {
    measure: Measure::Union,
    always_needs_score: false,
    border: 0.0,
    confirmations: 0,
    counts_all_pairs: false,
    edits_masks: false,
    ended_give_way: false,
    clears_lone_masks: true,
};

const SAM3_1: PhraseRules = PhraseRules {
    measure: Measure::Smaller,
    always_needs_score: true,
    border: 0.025,
    confirmations: 3,
    counts_all_pairs: true,
    edits_masks: true,
    ended_give_way: true,
    clears_lone_masks: false,
};

impl PhraseRules {
    pub(super) fn of(form: Option<MemoryForm>) -> Self {
        match form {
            Some(MemoryForm::Sam3_1) => SAM3_1,
            Some(MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3) | None => SAM3,
        }
    }
}

/// What decides about detections and tracks.
#[derive(Clone, Copy)]
pub(super) struct Policy<'a> {
    pub(super) options: &'a PhraseOptions,
    pub(super) rules: PhraseRules,
}

impl Sam {
    fn memory_form(&self) -> Option<MemoryForm> {
        self.model().config().memory.as_ref().map(|memory| memory.form)
    }

    pub(super) fn phrase_rules(&self) -> PhraseRules {
        PhraseRules::of(self.memory_form())
    }

    /// The options for phrases in video that suit this model: Meta's for its family.
    pub fn phrase_options(&self) -> PhraseOptions {
        match self.memory_form() {
            Some(MemoryForm::Sam3_1) => PhraseOptions::sam3_1(),
            Some(MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3) | None => {
                PhraseOptions::default()
            }
        }
    }
}
