//! What is looked for in a video: a phrase, with exemplars on some frames, or exemplars alone.

use std::collections::BTreeMap;

use super::decisions::PhraseRecord;
use crate::find::{Find, VISUAL};

/// One thing that is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    /// `None` for exemplars alone.
    text: Option<String>,
    /// Exemplars on frames that are still to come. They count on their frame only.
    exemplars: BTreeMap<usize, Find>,
    /// Whether a frame was searched for it.
    pub(super) is_old: bool,
    pub(super) record: PhraseRecord,
    /// Probability that the current frame has any such object, if it was searched.
    pub(super) presence: Option<f32>,
}

impl Query {
    pub(super) fn new(text: Option<&str>) -> Self {
        Query { text: text.map(str::to_owned), ..Query::default() }
    }

    /// The phrase as shown; exemplars alone have the phrase that the model reads in its place.
    pub(super) fn name(&self) -> &str {
        self.text.as_deref().unwrap_or(VISUAL)
    }

    /// Adds exemplars on a frame to those that it has.
    pub(super) fn show(&mut self, frame: usize, exemplars: &Find) {
        let own = self.exemplars.entry(frame).or_default();
        *own = std::mem::take(own).with_exemplars_of(exemplars);
    }

    /// What to ask the detector on a frame; `None` for exemplars alone on a frame that has none.
    pub(super) fn question(&self, frame: usize, threshold: f32) -> Option<Find> {
        let exemplars = self.exemplars.get(&frame).cloned();
        let question = match (&self.text, exemplars) {
            (None, exemplars) => exemplars?,
            (Some(text), exemplars) => exemplars.unwrap_or_default().and(text),
        };
        Some(question.threshold(threshold))
    }

    /// Forgets what counted on a frame only.
    pub(super) fn passed(&mut self, frame: usize) {
        self.exemplars.remove(&frame);
    }

    /// The direction changes: what speaks against an object is counted anew.
    pub(super) fn turn(&mut self) {
        self.record.turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::{Label, Rect};

    #[test]
    fn exemplars_count_on_their_frame() {
        let rect = Rect { x0: 1.0, y0: 1.0, x1: 5.0, y1: 5.0 };
        let (mut alone, mut cat) = (Query::new(None), Query::new(Some("cat")));
        for query in [&mut alone, &mut cat] {
            query.show(3, &Find::like(rect));
            query.show(3, &Find::default().with_rect(rect, Label::Negative));
        }
        assert!(alone.question(2, 0.5).is_none());
        assert_eq!(alone.question(3, 0.5).unwrap().rects().len(), 2);
        assert_eq!(cat.question(2, 0.5).unwrap().rects().len(), 0);
        assert_eq!(cat.question(3, 0.5).unwrap().phrases(), ["cat"]);
        assert_eq!(cat.question(3, 0.5).unwrap().rects().len(), 2);
        cat.passed(3);
        assert_eq!(cat.question(3, 0.5).unwrap().rects().len(), 0);
        assert_eq!((alone.name(), cat.name()), ("visual", "cat"));
    }
}
