//! Objects are told when detections have shown them on some frames running.

use std::collections::{BTreeMap, BTreeSet};

/// What detections have shown of the tracks of one phrase.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirmation {
    /// Frames running up to the last one on which a detection showed each track.
    running: BTreeMap<usize, usize>,
    /// Tracks that were shown often enough once.
    confirmed: BTreeSet<usize>,
}

impl Confirmation {
    /// Counts a frame with its tracks and those of them that detections show. Returns the tracks that are not told yet.
    pub(super) fn count(
        &mut self,
        tracks: impl Iterator<Item = usize>,
        shown: &BTreeSet<usize>,
        frames: usize,
    ) -> BTreeSet<usize> {
        let mut running = BTreeMap::new();
        for id in tracks {
            let before = self.running.get(&id).copied().unwrap_or_default();
            let now = if shown.contains(&id) { before + 1 } else { 0 };
            running.insert(id, now);
            if now >= frames {
                self.confirmed.insert(id);
            }
        }
        self.confirmed.retain(|id| running.contains_key(id));
        self.running = running;
        self.running.keys().filter(|id| !self.confirmed.contains(id)).copied().collect()
    }

    /// A user pointed at a track.
    pub(super) fn confirm(&mut self, id: usize) {
        self.confirmed.insert(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_told_once_it_was_shown_on_frames_running() {
        let mut confirmation = Confirmation::default();
        let mut count = |shown: &[usize]| {
            let shown = shown.iter().copied().collect();
            confirmation.count([1, 2].into_iter(), &shown, 2).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(count(&[1]), [1, 2]);
        assert_eq!(count(&[2]), [1, 2]);
        assert_eq!(count(&[2]), [1]);
        // Once told, always told.
        assert_eq!(count(&[]), [1]);
        assert_eq!(count(&[1]), [1]);
        assert!(count(&[1]).is_empty());
    }
}
