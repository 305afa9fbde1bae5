//! What happens to the tracks of one phrase on a frame, in the order in which Meta decides it.

use std::collections::BTreeSet;

use super::confirmation::Confirmation;
use super::hot_start::{FrameStep, Probation};
use super::matching::{Detected, Matches, Tracked, associate};
use super::occlusion::Occlusions;
use super::rules::Policy;

/// What is remembered about the tracks of one phrase between frames. Its size depends on the tracks that there are.
#[derive(Clone, Debug, Default)]
pub(super) struct PhraseRecord {
    probation: Probation,
    occlusions: Occlusions,
    confirmation: Confirmation,
}

/// What a frame shows of one phrase.
pub(super) struct Shown<'a> {
    pub(super) detections: &'a [Detected],
    pub(super) tracks: &'a [Tracked],
    /// Number of the next new track.
    pub(super) next_id: usize,
    /// How many tracks may still start.
    pub(super) room: usize,
    /// Whether the frame was searched. If not, that no detection shows a track says nothing about it.
    pub(super) was_searched: bool,
}

/// What is to be done on a frame.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decisions {
    /// Detections that start a track, in the order of their numbers from `next_id` on.
    pub(super) new: Vec<usize>,
    /// Tracks that end after this frame, ascending.
    pub(super) removed: Vec<usize>,
    /// Tracks with the detection that may renew them.
    pub(super) renewing: Vec<(usize, usize)>,
    /// Tracks that are not told yet.
    pub(super) unconfirmed: BTreeSet<usize>,
    /// Detections beyond the limit of tracks.
    pub(super) dropped: usize,
}

impl PhraseRecord {
    /// Decides about a frame, and remembers what later frames need.
    pub(super) fn decide(
        &mut self,
        step: FrameStep,
        shown: &Shown<'_>,
        policy: Policy<'_>,
    ) -> Decisions {
        let matches = associate(shown.detections, shown.tracks, policy);
        let new = best_of(&matches, shown);
        let dropped = matches.new.len() - new.len();
        let ids: Vec<usize> = (shown.next_id..).take(new.len()).collect();
        self.probation.begin(step, &ids);
        let removed = match shown.was_searched {
            true => self.probation.judge(step, &matches, policy),
            false => Vec::new(),
        };
        let unconfirmed = match policy.rules.confirmations {
            0 => BTreeSet::new(),
            frames => {
                let known = shown.tracks.iter().map(|track| track.id);
                let left = known.filter(|id| !removed.contains(id)).chain(ids.iter().copied());
                let seen = matches.tracks_of.iter().flatten().chain(&ids).copied().collect();
                self.confirmation.count(left, &seen, frames)
            }
        };
        Decisions { new, removed, renewing: matches.renewing, unconfirmed, dropped }
    }

    /// Positions of the tracks whose masks give way to another. `removed`: tracks that end with this frame.
    pub(super) fn suppress(
        &mut self,
        step: FrameStep,
        tracks: &[Tracked],
        removed: &[usize],
        policy: Policy<'_>,
    ) -> Vec<usize> {
        self.occlusions.suppress(step, tracks, removed, policy)
    }

    /// Forgets a track that a user removed.
    pub(super) fn forget(&mut self, id: usize) {
        self.probation.forget(id);
    }

    /// A user pointed at a track: it is no longer on probation.
    pub(super) fn confirm(&mut self, id: usize) {
        self.probation.forget(id);
        self.confirmation.confirm(id);
    }

    /// Counts anew what speaks against tracks: the direction changes.
    pub(super) fn turn(&mut self) {
        self.probation.turn();
    }
}

/// The new detections; of more than there is room for, the best, in the order of their scores.
fn best_of(matches: &Matches, shown: &Shown<'_>) -> Vec<usize> {
    let mut new = matches.new.clone();
    if new.len() > shown.room {
        let score = |index: &usize| shown.detections[*index].score;
        new.sort_by(|a, b| score(b).total_cmp(&score(a)).then(b.cmp(a)));
        new.truncate(shown.room);
    }
    new
}
