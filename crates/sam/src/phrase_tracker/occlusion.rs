//! Of two tracks with nearly the same mask, the one that was hidden more recently gives way.

use std::collections::BTreeMap;

use super::hot_start::FrameStep;
use super::matching::Tracked;
use super::rules::Policy;
use crate::bits::Measure;

/// Later than any frame: tracks that were just removed.
const ALWAYS: i64 = 100_000;
const NEVER: i64 = -1;

/// The last frame on which each track was hidden, or gave way.
#[derive(Clone, Debug, Default)]
pub(super) struct Occlusions {
    last: BTreeMap<usize, i64>,
}

impl Occlusions {
    /// Positions of the tracks whose masks give way on this frame. `removed`: tracks that end with it.
    pub(super) fn suppress(
        &mut self,
        step: FrameStep,
        tracks: &[Tracked],
        removed: &[usize],
        Policy { options, rules }: Policy<'_>,
    ) -> Vec<usize> {
        let iou = options.occlusion_iou;
        let record = |track: &Tracked| {
            let known = self.last.get(&track.id).copied();
            match removed.contains(&track.id) {
                true if rules.ended_give_way => ALWAYS,
                true => known.unwrap_or(ALWAYS),
                false => known.unwrap_or(NEVER),
            }
        };
        let last: Vec<i64> = tracks.iter().map(record).collect();
        let gives_way = |index: &usize| {
            let yields_to = |other: usize| {
                let later = if step.backward {
                    last[*index] < last[other]
                } else {
                    last[*index] > last[other]
                };
                // Meta compares only with tracks that were hidden before.
                let comparable = other != *index && later && last[other] > NEVER;
                let (own, other) = (&tracks[*index].mask, &tracks[other].mask);
                comparable && own.overlap(other, Measure::Union) >= iou
            };
            (0..tracks.len()).any(yields_to)
        };
        let suppressed: Vec<usize> = (0..tracks.len()).filter(gives_way).collect();
        let hidden = |index: usize| tracks[index].mask.is_empty() || suppressed.contains(&index);
        let now = |(index, last): (usize, &i64)| {
            let last = if hidden(index) { step.frame as i64 } else { *last };
            (tracks[index].id, last)
        };
        self.last = last.iter().enumerate().map(now).collect();
        suppressed
    }
}
