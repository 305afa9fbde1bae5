//! Answers are held back until the tracks in them are no longer on probation.

use std::collections::{BTreeSet, VecDeque};

/// Frames that are not shown yet, oldest first.
pub(super) struct HeldBack<T> {
    frames: VecDeque<T>,
    /// How many frames are held; 0 shows each at once.
    delay: usize,
    /// Tracks that were removed while frames with them are held, with the number of frames that may still show them.
    removed: Vec<(usize, usize)>,
}

impl<T> HeldBack<T> {
    pub(super) fn new(delay: usize) -> Self {
        HeldBack { frames: VecDeque::new(), delay, removed: Vec::new() }
    }

    /// Adds a frame with the tracks that ended on it; returns the one to show, if it is time.
    pub(super) fn push(&mut self, frame: T, removed: &[usize]) -> Option<(T, BTreeSet<usize>)> {
        self.frames.push_back(frame);
        let held = self.frames.len();
        self.removed.extend(removed.iter().map(|id| (*id, held)));
        (held >= self.delay.max(1)).then(|| self.show()).flatten()
    }

    /// The oldest frame, with the tracks that are hidden in it.
    pub(super) fn show(&mut self) -> Option<(T, BTreeSet<usize>)> {
        let frame = self.frames.pop_front()?;
        let hidden = self.removed.iter().map(|(id, _)| *id).collect();
        self.removed.retain_mut(|(_, left)| {
            *left -= 1;
            *left > 0
        });
        Some((frame, hidden))
    }

    /// Frames held now.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_late_without_removed_tracks() {
        let mut held = HeldBack::new(3);
        assert!(held.push('a', &[]).is_none());
        assert!(held.push('b', &[]).is_none());
        assert_eq!(held.push('c', &[7]), Some(('a', BTreeSet::from([7]))));
        assert_eq!(held.push('d', &[]), Some(('b', BTreeSet::from([7]))));
        assert_eq!(held.len(), 2);
        assert_eq!(held.show(), Some(('c', BTreeSet::from([7]))));
        // The track ended on frame c.
        assert_eq!(held.show(), Some(('d', BTreeSet::new())));
        assert_eq!(held.show(), None);
    }

    #[test]
    fn without_delay_each_frame_is_shown_at_once() {
        let mut held = HeldBack::new(0);
        assert_eq!(held.push('a', &[1]), Some(('a', BTreeSet::from([1]))));
        assert_eq!(held.push('b', &[]), Some(('b', BTreeSet::new())));
    }
}
