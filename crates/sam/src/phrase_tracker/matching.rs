//! Which detections of a frame belong to which tracks.

use super::rules::Policy;
use crate::bits::{BitMask, Measure};

/// A detection of the current frame.
pub(super) struct Detected {
    /// Probability of the detector.
    pub(super) score: f32,
    pub(super) mask: BitMask,
    /// Whether it is not at the border of the picture.
    pub(super) central: bool,
}

/// A track on the current frame.
pub(super) struct Tracked {
    pub(super) id: usize,
    pub(super) mask: BitMask,
}

/// How the detections and tracks of one phrase belong together.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Matches {
    /// Detections that start a track.
    pub(super) new: Vec<usize>,
    /// Tracks with a mask that no detection confirms.
    pub(super) unmatched: Vec<usize>,
    /// The tracks of each detection.
    pub(super) tracks_of: Vec<Vec<usize>>,
    /// Tracks with the detection that may renew them.
    pub(super) renewing: Vec<(usize, usize)>,
}

/// Matches detections and tracks of one phrase.
pub(super) fn associate(
    detections: &[Detected],
    tracks: &[Tracked],
    Policy { options, rules }: Policy<'_>,
) -> Matches {
    let is_strong = |index: &usize| detections[*index].score >= options.new_object_threshold;
    if tracks.is_empty() {
        let (central, others): (Vec<usize>, Vec<usize>) = (0..detections.len())
            .filter(|index| !rules.always_needs_score || is_strong(index))
            .partition(|index| detections[*index].central);
        let new = [central, others].concat();
        return Matches {
            new,
            tracks_of: vec![Vec::new(); detections.len()],
            ..Matches::default()
        };
    }
    let overlaps = Overlaps::of(detections, tracks, rules.measure);
    let unmatched = |(index, track): (usize, &Tracked)| {
        let confirmed = overlaps.of_track(index).any(|iou| iou >= options.unmatched_iou);
        (!track.mask.is_empty() && !confirmed).then_some(track.id)
    };
    let is_new = |index: &usize| {
        is_strong(index)
            && detections[*index].central
            && !overlaps.of_detection(*index).any(|iou| iou >= options.match_iou)
    };
    let new: Vec<usize> = (0..detections.len()).filter(is_new).collect();
    let certain = overlaps.without_ambiguous(options.recondition_iou);
    let mut matches = Matches {
        unmatched: tracks.iter().enumerate().filter_map(unmatched).collect(),
        ..Matches::default()
    };
    for (index, detection) in detections.iter().enumerate() {
        let close = certain.of_detection(index).enumerate();
        let close = close.filter(|(_, iou)| *iou >= options.match_iou);
        matches.tracks_of.push(close.map(|(track, _)| tracks[track].id).collect());
        let (best, iou) = certain.best_track(index);
        let sure = detection.central
            && detection.score >= options.recondition_score
            && !new.contains(&index);
        if sure && iou >= options.recondition_iou {
            renew(&mut matches.renewing, tracks[best].id, index);
        }
    }
    Matches { new, ..matches }
}

/// A later detection takes the place of an earlier one.
fn renew(renewing: &mut Vec<(usize, usize)>, id: usize, detection: usize) {
    match renewing.iter_mut().find(|(track, _)| *track == id) {
        Some(entry) => entry.1 = detection,
        None => renewing.push((id, detection)),
    }
}

/// Overlap of each detection with each track, `[detections, tracks]`; 0 for detections at the border.
struct Overlaps {
    values: Vec<f32>,
    tracks: usize,
}

impl Overlaps {
    fn of(detections: &[Detected], tracks: &[Tracked], measure: Measure) -> Self {
        let row = |detection: &Detected| {
            let overlap = |track: &Tracked| match detection.central {
                true => detection.mask.overlap(&track.mask, measure),
                false => 0.0,
            };
            tracks.iter().map(overlap).collect()
        };
        let values: Vec<Vec<f32>> = detections.iter().map(row).collect();
        Overlaps { values: values.concat(), tracks: tracks.len() }
    }

    fn of_detection(&self, index: usize) -> impl Iterator<Item = f32> {
        self.values[index * self.tracks..][..self.tracks].iter().copied()
    }

    fn of_track(&self, index: usize) -> impl Iterator<Item = f32> {
        self.values.iter().skip(index).step_by(self.tracks).copied()
    }

    /// The track that overlaps a detection most, the first of equals.
    fn best_track(&self, detection: usize) -> (usize, f32) {
        let mut best = (0, f32::NEG_INFINITY);
        for (track, iou) in self.of_detection(detection).enumerate() {
            if iou > best.1 {
                best = (track, iou);
            }
        }
        best
    }

    /// The overlaps with 0 for tracks and detections that have more than one partner at `iou` or above.
    fn without_ambiguous(&self, iou: f32) -> Self {
        let many = |values: &mut dyn Iterator<Item = f32>| values.filter(|v| *v >= iou).count() > 1;
        let detections = self.values.len() / self.tracks;
        let rows: Vec<bool> = (0..detections).map(|i| many(&mut self.of_detection(i))).collect();
        let columns: Vec<bool> = (0..self.tracks).map(|i| many(&mut self.of_track(i))).collect();
        let kept = |(position, value): (usize, &f32)| {
            let ambiguous = rows[position / self.tracks] || columns[position % self.tracks];
            if ambiguous { 0.0 } else { *value }
        };
        let values = self.values.iter().enumerate().map(kept).collect();
        Overlaps { values, tracks: self.tracks }
    }
}

/// Detections that remain when those below the threshold and those that repeat a better one are left out.
pub(super) fn suppress_duplicates(detections: &[Detected], policy: Policy<'_>) -> Vec<usize> {
    let (threshold, iou) = (policy.options.detection_threshold, policy.options.duplicate_iou);
    let mut order: Vec<usize> =
        (0..detections.len()).filter(|index| detections[*index].score > threshold).collect();
    // Meta reverses an ascending sort, which puts the last of equals first.
    order.sort_by(|a, b| detections[*b].score.total_cmp(&detections[*a].score).then(b.cmp(a)));
    let mut kept: Vec<usize> = Vec::new();
    for index in order {
        let mask = &detections[index].mask;
        let overlaps =
            |other: &usize| detections[*other].mask.overlap(mask, policy.rules.measure) > iou;
        // No overlap is above 1.
        if iou >= 1.0 || !kept.iter().any(overlaps) {
            kept.push(index);
        }
    }
    kept.sort_unstable();
    kept
}
