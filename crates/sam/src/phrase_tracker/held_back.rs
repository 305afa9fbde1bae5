//! Answers are held back until the tracks in them are no longer on probation.

use std::collections::{BTreeSet, VecDeque};

/// Frames that are not shown yet, oldest first.
pub(super) struct HeldBack<T> {
    frames: VecDeque<T>,
    /// Tracks that are not told yet, by frame.
    unconfirmed: VecDeque<BTreeSet<usize>>,
    /// A frame hides what is not told so many frames later.
    foresight: usize,
    /// How many frames follow one before it is shown; 0 shows each at once.
    latency: usize,
    /// Tracks that were removed while frames with them are held, with the number of frames that may still show them.
    removed: Vec<(usize, usize)>,
    /// Frames before the direction changed, with the tracks that are hidden in them.
    settled: VecDeque<(T, BTreeSet<usize>)>,
}

impl<T> HeldBack<T> {
    pub(super) fn new(latency: usize, foresight: usize) -> Self {
        HeldBack {
            frames: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            foresight,
            latency,
            removed: Vec::new(),
            settled: VecDeque::new(),
        }
    }

    /// Adds a frame with the tracks that ended on it and those that are not told yet.
    pub(super) fn push(&mut self, frame: T, removed: &[usize], unconfirmed: BTreeSet<usize>) {
        self.frames.push_back(frame);
        self.unconfirmed.push_back(unconfirmed);
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
        if let Some(settled) = self.settled.pop_front() {
            return Some(settled);
        }
        // Where answers come sooner than what they depend on, nothing is hidden.
        let blind = self.latency < self.foresight;
        let is_time = self.frames.len() > self.latency;
        is_time.then(|| self.oldest(if blind { None } else { Some(self.foresight) })).flatten()
    }

    /// The oldest frame, with the tracks that are hidden in it.
    pub(super) fn show(&mut self) -> Option<(T, BTreeSet<usize>)> {
        // No frames follow the last one.
        let last = self.frames.len().saturating_sub(1);
        self.settled.pop_front().or_else(|| self.oldest(Some(self.foresight.min(last))))
    }

    /// The oldest frame. `told`: the frame after it by which it is known what is told.
    fn oldest(&mut self, told: Option<usize>) -> Option<(T, BTreeSet<usize>)> {
        let frame = self.frames.pop_front()?;
        let mut hidden: BTreeSet<usize> = self.removed.iter().map(|(id, _)| *id).collect();
        if let Some(unconfirmed) = told.and_then(|told| self.unconfirmed.get(told)) {
            hidden.extend(unconfirmed);
        }
        self.unconfirmed.pop_front();
        self.removed.retain_mut(|(_, left)| {
            *left -= 1;
            *left > 0
        });
        Some((frame, hidden))
    }

    /// What is held is not changed by later frames.
    pub(super) fn settle(&mut self) {
        while !self.frames.is_empty() {
            let told = self.foresight.min(self.frames.len() - 1);
            let oldest = self.oldest(Some(told));
            self.settled.extend(oldest);
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
        held.push(frame, removed, BTreeSet::new());
        listed(held.ready())
    }

    fn listed(shown: Option<(char, BTreeSet<usize>)>) -> Option<(char, Vec<usize>)> {
        shown.map(|(frame, hidden)| (frame, hidden.into_iter().collect()))
    }

    #[test]
    fn frames_come_late_without_removed_tracks() {
        let mut held = HeldBack::new(2, 0);
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
    fn what_is_not_told_two_frames_later_is_hidden() {
        let unconfirmed = [&[1, 2][..], &[1], &[1], &[1, 3]];
        let shown = |latency: usize| {
            let (mut held, mut shown) = (HeldBack::new(latency, 2), Vec::new());
            for (frame, unconfirmed) in unconfirmed.iter().enumerate() {
                held.push(frame, &[], unconfirmed.iter().copied().collect());
                shown.extend(held.ready());
            }
            shown.extend(std::iter::from_fn(|| held.show()));
            let hidden = |(_, hidden): (usize, BTreeSet<usize>)| hidden.into_iter().collect();
            shown.into_iter().map(hidden).collect::<Vec<Vec<usize>>>()
        };
        let expected: [&[usize]; 4] = [&[1], &[1, 3], &[1, 3], &[1, 3]];
        assert_eq!(shown(2), expected);
        assert_eq!(shown(3), expected);
        // What is answered at once cannot wait for it.
        assert_eq!(shown(0), [&[] as &[usize]; 4]);
    }

    #[test]
    fn without_latency_each_frame_is_shown_at_once() {
        let mut held = HeldBack::new(0, 0);
        assert_eq!(push(&mut held, 'a', &[1]), Some(('a', vec![1])));
        assert_eq!(push(&mut held, 'b', &[]), Some(('b', vec![])));
        held.hide(4);
        assert_eq!(push(&mut held, 'c', &[]), Some(('c', vec![])), "nothing is held to hide it in");
    }

    #[test]
    fn frames_of_the_other_direction_are_settled() {
        let mut held = HeldBack::new(2, 0);
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
