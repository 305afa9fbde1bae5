//! New tracks are on probation: those that detections do not confirm, and duplicates of earlier ones, are removed.

use std::collections::BTreeMap;

use super::matching::Matches;
use super::rules::Policy;

/// Direction and number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameStep {
    pub(super) frame: usize,
    pub(super) backward: bool,
}

impl FrameStep {
    /// Whether `first` lies less than `delay` frames back in the direction of the pass.
    fn is_within(self, first: usize, delay: usize) -> bool {
        if self.backward { first < self.frame + delay } else { first + delay > self.frame }
    }
}

/// What is known about the tracks of one phrase.
#[derive(Clone, Debug, Default)]
pub(super) struct Probation {
    tracks: BTreeMap<usize, Record>,
    /// Frames on which the second track had the same detection as the first, which is older.
    duplicates: BTreeMap<(usize, usize), usize>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    first_frame: usize,
    /// Frames on which no detection confirmed the mask.
    unmatched: usize,
}

impl Probation {
    /// Enters the tracks that start on a frame.
    pub(super) fn begin(&mut self, step: FrameStep, ids: &[usize]) {
        for id in ids {
            let record = Record { first_frame: step.frame, unmatched: 0 };
            self.tracks.entry(*id).or_insert(record);
        }
    }

    /// Counts what a frame says about the tracks; returns those to remove, ascending.
    pub(super) fn judge(
        &mut self,
        step: FrameStep,
        matches: &Matches,
        Policy { options, rules }: Policy<'_>,
    ) -> Vec<usize> {
        for id in &matches.unmatched {
            if let Some(record) = self.tracks.get_mut(id) {
                record.unmatched += 1;
            }
        }
        for tracks in &matches.tracks_of {
            match rules.counts_all_pairs {
                true => self.count_pairs(tracks),
                false => self.count_duplicates(step, tracks),
            }
        }
        let on_probation = |id: &usize| {
            let record = self.tracks.get(id);
            record.is_some_and(|record| step.is_within(record.first_frame, options.delay))
        };
        let unconfirmed = self.tracks.iter().filter(|(_, record)| {
            options.unmatched_frames > 0 && record.unmatched >= options.unmatched_frames
        });
        let doubled = self.duplicates.iter().filter(|((first, later), frames)| {
            options.duplicate_frames > 0
                && **frames >= options.duplicate_frames
                && (!rules.counts_all_pairs || self.is_older(step, *first, *later))
        });
        let mut removed: Vec<usize> = unconfirmed
            .map(|(id, _)| *id)
            .chain(doubled.map(|((_, later), _)| *later))
            .filter(on_probation)
            .collect();
        removed.sort_unstable();
        removed.dedup();
        removed.iter().for_each(|id| self.forget(*id));
        removed
    }

    /// Whether the first track was born before the other, on this way.
    fn is_older(&self, step: FrameStep, first: usize, other: usize) -> bool {
        let born = |id: usize| self.tracks.get(&id).map_or(0, |record| record.first_frame);
        match step.backward {
            false => born(first) < born(other),
            true => born(first) > born(other),
        }
    }

    /// Any two tracks with one detection may be duplicates.
    fn count_pairs(&mut self, tracks: &[usize]) {
        for (index, first) in tracks.iter().enumerate() {
            for later in &tracks[index + 1..] {
                *self.duplicates.entry((*first, *later)).or_default() += 1;
            }
        }
    }

    /// Of the tracks with one detection, all but the oldest are duplicates.
    fn count_duplicates(&mut self, step: FrameStep, tracks: &[usize]) {
        let mut oldest: Option<usize> = None;
        for id in tracks {
            if oldest.is_none_or(|other| self.is_older(step, *id, other)) {
                oldest = Some(*id);
            }
        }
        let Some(oldest) = oldest else { return };
        for later in tracks.iter().filter(|id| **id != oldest) {
            *self.duplicates.entry((oldest, *later)).or_default() += 1;
        }
    }

    /// Counts anew on the way in the other direction.
    pub(super) fn turn(&mut self) {
        self.tracks.values_mut().for_each(|record| record.unmatched = 0);
        self.duplicates.clear();
    }

    /// Drops all that is known about a track.
    pub(super) fn forget(&mut self, id: usize) {
        self.tracks.remove(&id);
        self.duplicates.retain(|(first, later), _| *first != id && *later != id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::PhraseOptions;
    use super::super::rules::PhraseRules;
    use super::*;

    #[test]
    fn what_speaks_against_tracks_is_counted_anew_on_the_way_back() {
        let options =
            PhraseOptions { unmatched_frames: 3, duplicate_frames: 3, ..Default::default() };
        let policy = Policy { options: &options, rules: PhraseRules::of(None) };
        let step = |frame, backward| FrameStep { frame, backward };
        let unmatched = Matches { unmatched: vec![1], ..Matches::default() };
        let doubled = Matches { tracks_of: vec![vec![1, 2]], ..Matches::default() };
        for matches in [&unmatched, &doubled] {
            let mut probation = Probation::default();
            probation.begin(step(4, false), &[1]);
            probation.begin(step(5, false), &[2]);
            for frame in [6, 7] {
                assert!(probation.judge(step(frame, false), matches, policy).is_empty());
            }
            probation.turn();
            for frame in [3, 2] {
                assert!(probation.judge(step(frame, true), matches, policy).is_empty());
            }
            // Of duplicates, the one that was born later is the older one on this way.
            assert_eq!(probation.judge(step(1, true), matches, policy), [1]);
        }
    }
}
