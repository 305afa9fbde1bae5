//! Answers are held back until the tracks in them are no longer on probation.

use std::collections::{BTreeSet, VecDeque};

/// Frames that are not shown yet, oldest first.
pub(super) struct HeldBack<T> {
    frames: VecDeque<T>,
    /// How many frames follow one before it is shown; 0 shows each at once.
    latency: usize,
    /// Tracks that were removed while frames with them are held, with the number of frames that may still show them.
    removed: Vec<(usize, usize)>,
    /// Frames before the direction changed, with the tracks that are hidden in them.
    settled: VecDeque<(T, BTreeSet<usize>)>,
}

impl<T> HeldBack<T> {
    pub(super) fn new(latency: usize) -> Self {
        let (frames, settled) = (VecDeque::new(), VecDeque::new());
        HeldBack { frames, latency, removed: Vec::new(), settled }
    }

    /// Adds a frame with the tracks that ended on it.
    pub(super) fn push(&mut self, frame: T, removed: &[usize]) {
        self.frames.push_back(frame);
        removed.iter().for_each(|id| self.hide(*id));
    }

    /// Hides a track in all frames that are held.
    pub(super) fn hide(&mut self, id: usize) {
        if !self.frames.is_empty() {
            self.removed.push((id, self.frames.len()));
        }
    }

    /// The frame to show, if it is time, with the tracks that are hidden in it.
    pub(super) fn ready(&mut self) -> Option<(T, BTreeSet<usize>)> {
        let is_time = !self.settled.is_empty() || self.frames.len() > self.latency;
        is_time.then(|| self.show()).flatten()
    }

    /// The oldest frame, with the tracks that are hidden in it.
    pub(super) fn show(&mut self) -> Option<(T, BTreeSet<usize>)> {
        self.settled.pop_front().or_else(|| self.oldest())
    }

    fn oldest(&mut self) -> Option<(T, BTreeSet<usize>)> {
        let frame = self.frames.pop_front()?;
        let hidden = self.removed.iter().map(|(id, _)| *id).collect();
        self.removed.retain_mut(|(_, left)| {
            *left -= 1;
            *left > 0
        });
        Some((frame, hidden))
    }

    /// What is held is not changed by later frames.
    pub(super) fn settle(&mut self) {
        while let Some(frame) = self.oldest() {
            self.settled.push_back(frame);
        }
    }

    /// The newest frame, if it is still held.
    pub(super) fn newest(&mut self) -> Option<&mut T> {
        self.frames.back_mut()
    }

    /// Frames held now.
    pub(super) fn len(&self) -> usize {
        self.settled.len() + self.frames.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.settled.iter().map(|(frame, _)| frame).chain(&self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(
        held: &mut HeldBack<char>,
        frame: char,
        removed: &[usize],
    ) -> Option<(char, Vec<usize>)> {
        held.push(frame, removed);
        listed(held.ready())
    }

    fn listed(shown: Option<(char, BTreeSet<usize>)>) -> Option<(char, Vec<usize>)> {
        shown.map(|(frame, hidden)| (frame, hidden.into_iter().collect()))
    }

    #[test]
    fn frames_come_late_without_removed_tracks() {
        let mut held = HeldBack::new(2);
        assert!(push(&mut held, 'a', &[]).is_none());
        assert!(push(&mut held, 'b', &[]).is_none());
        assert_eq!(push(&mut held, 'c', &[7]), Some(('a', vec![7])));
        assert_eq!(push(&mut held, 'd', &[]), Some(('b', vec![7])));
        assert_eq!(held.len(), 2);
        assert_eq!(listed(held.show()), Some(('c', vec![7])));
        // The track ended on frame c.
        assert_eq!(listed(held.show()), Some(('d', vec![])));
        assert_eq!(held.show(), None);
    }

    #[test]
    fn without_latency_each_frame_is_shown_at_once() {
        let mut held = HeldBack::new(0);
        assert_eq!(push(&mut held, 'a', &[1]), Some(('a', vec![1])));
        assert_eq!(push(&mut held, 'b', &[]), Some(('b', vec![])));
        held.hide(4);
        assert_eq!(push(&mut held, 'c', &[]), Some(('c', vec![])), "nothing is held to hide it in");
    }

    #[test]
    fn frames_of_the_other_direction_are_settled() {
        let mut held = HeldBack::new(2);
        assert!(push(&mut held, 'a', &[]).is_none());
        assert!(push(&mut held, 'b', &[3]).is_none());
        held.settle();
        assert_eq!(push(&mut held, 'z', &[5]), Some(('a', vec![3])));
        assert_eq!(held.newest(), Some(&mut 'z'));
        assert_eq!(held.iter().collect::<String>(), "bz");
        assert_eq!(listed(held.show()), Some(('b', vec![3])));
        assert_eq!(listed(held.show()), Some(('z', vec![5])));
    }
}
