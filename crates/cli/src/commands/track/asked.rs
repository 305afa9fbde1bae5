//! Phrases, exemplars and removals on frames of a video, in command-line order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cutout_imaging::Size;
use cutout_sam::prompt_text::ExemplarShape;
use cutout_sam::{Find, Label, ObjectId, PhraseTracker, Sam};

/// A phrase with its exemplars, or exemplars alone.
#[derive(Clone, Debug, Default)]
struct AskedPhrase {
    /// With the frame from which on it is looked for.
    text: Option<(usize, String)>,
    exemplars: BTreeMap<usize, Vec<(ExemplarShape, Label)>>,
}

/// What is to be found, and what is to be removed, by frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    phrases: Vec<AskedPhrase>,
    removed: BTreeMap<usize, BTreeSet<ObjectId>>,
}

impl Asked {
    /// Whether nothing is to be found.
    pub(super) fn is_empty(&self) -> bool {
        self.phrases.is_empty()
    }

    /// Whether an object is to be removed.
    pub(super) fn removes(&self) -> bool {
        !self.removed.is_empty()
    }

    pub(super) fn add_text(&mut self, frame: usize, text: String) {
        self.phrases.push(AskedPhrase { text: Some((frame, text)), ..AskedPhrase::default() });
    }

    /// Adds an exemplar to the phrase before it on the command line; without one it is looked for by itself.
    pub(super) fn add_exemplar(&mut self, frame: usize, exemplar: (ExemplarShape, Label)) {
        if self.phrases.is_empty() {
            self.phrases.push(AskedPhrase::default());
        }
        if let Some(phrase) = self.phrases.last_mut() {
            phrase.exemplars.entry(frame).or_default().push(exemplar);
        }
    }

    pub(super) fn add_removal(&mut self, frame: usize, object: ObjectId) {
        self.removed.entry(frame).or_default().insert(object);
    }

    /// All frames that are named.
    pub(super) fn frames(&self) -> impl Iterator<Item = usize> {
        let phrases = self.phrases.iter().flat_map(AskedPhrase::frames);
        phrases.chain(self.removed.keys().copied())
    }

    /// Checks phrases and exemplars against the size of the video, before any frame is encoded.
    pub(super) fn check(&self, sam: &Sam, size: Size) -> Result<()> {
        for phrase in &self.phrases {
            if let Some((_, text)) = &phrase.text {
                sam.check_find(&Find::phrase(text), size)?;
            }
            for frame in phrase.exemplars.keys() {
                let exemplars = phrase.exemplars_on(*frame).unwrap_or_default();
                sam.check_find(&exemplars, size).with_context(|| format!("frame {frame}"))?;
            }
        }
        Ok(())
    }

    /// Gives the phrases and exemplars of a frame to the tracker, before it follows that frame. `known` has the position of
    /// each phrase that was given before.
    pub(super) fn ask(
        &self,
        tracker: &mut PhraseTracker,
        frame: usize,
        known: &mut BTreeMap<usize, usize>,
    ) -> Result<()> {
        for (index, phrase) in self.phrases.iter().enumerate() {
            if !phrase.frames().any(|named| named == frame) {
                continue;
            }
            let mut position = known.get(&index).copied();
            if let (None, Some((_, text))) = (position, &phrase.text) {
                position = Some(tracker.add_phrase(text)?);
            }
            if let Some(exemplars) = phrase.exemplars_on(frame) {
                position = Some(tracker.add_exemplars(frame, position, &exemplars)?);
            }
            known.extend(position.map(|position| (index, position)));
        }
        Ok(())
    }

    /// Removes objects after a frame was followed.
    pub(super) fn remove(&self, tracker: &mut PhraseTracker, frame: usize) -> Result<()> {
        for object in self.removed.get(&frame).into_iter().flatten() {
            tracker.remove(*object).with_context(|| format!("--remove on frame {frame}"))?;
        }
        Ok(())
    }
}

impl AskedPhrase {
    /// The frames that are named for it. It is looked for from the first of them that is reached.
    fn frames(&self) -> impl Iterator<Item = usize> {
        self.text.iter().map(|(frame, _)| *frame).chain(self.exemplars.keys().copied())
    }

    fn exemplars_on(&self, frame: usize) -> Option<Find> {
        let exemplars = self.exemplars.get(&frame)?.iter();
        Some(exemplars.fold(Find::default(), |find, (shape, label)| match shape {
            ExemplarShape::Rect(rect) => find.with_rect(*rect, *label),
            ExemplarShape::Point(point) => find.with_point(*point, *label),
        }))
    }
}
