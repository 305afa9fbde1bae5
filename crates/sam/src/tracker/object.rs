//! One object over time: what is remembered of it on which frame.

use std::collections::BTreeMap;

use cutout_graph::DeviceValue;
use cutout_tensor::Tensor;

use super::options::{Corrections, Direction};
use crate::parts::{FrameMemory, ObjectBank};

/// What is known of an object on one frame.
pub(super) struct FrameRecord {
    /// None until the frame is left. Its keys are there while memory attention reads it and there is room for them.
    pub(super) memory: Option<FrameMemory<DeviceValue>>,
    /// `f32[1, width]`.
    pub(super) pointer: DeviceValue,
    /// `f32[side, side]`, on the host: what masks are made of.
    pub(super) logits: Tensor,
    pub(super) iou: f32,
    pub(super) object_score: f32,
    /// The way the video was gone through when the frame was last tracked; none for a frame that was only prompted.
    pub(super) tracked: Option<Direction>,
}

/// One object. Only what is in `prompted` and `found` is remembered.
#[derive(Default)]
pub(super) struct Object {
    /// Answers to prompts since a frame was last tracked, by frame.
    pub(super) pending: BTreeMap<usize, FrameRecord>,
    /// Frames with prompts.
    pub(super) prompted: BTreeMap<usize, FrameRecord>,
    /// Other frames.
    pub(super) found: BTreeMap<usize, FrameRecord>,
}

/// Where in time a bank is asked for.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) frame: usize,
    pub(super) direction: Direction,
    /// Number of frames, if it is known.
    pub(super) length: Option<usize>,
    /// Frames that object pointers reach back to in a long video, this one included.
    pub(super) pointer_frames: usize,
}

impl Moment {
    /// The frame `distance` steps back on the way.
    fn back(self, distance: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.frame.checked_sub(distance),
            Direction::Backward => {
                let frame = self.frame.checked_add(distance)?;
                (self.length.is_none_or(|length| frame < length)).then_some(frame)
            }
        }
    }

    /// How far back on the way a frame is; none for one that is still ahead.
    fn distance(self, frame: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.frame.checked_sub(frame),
            Direction::Backward => frame.checked_sub(self.frame),
        }
    }

    /// Object pointers reach back to fewer frames than this.
    fn pointer_reach(self) -> usize {
        self.length.map_or(self.pointer_frames, |length| length.min(self.pointer_frames))
    }
}

/// Which records memory attention reads.
pub(super) struct Selection {
    /// Frames with their row of the temporal table.
    pub(super) memories: Vec<(usize, i64)>,
    /// Frames with their distance in time.
    pub(super) pointers: Vec<(usize, usize)>,
}

impl Object {
    /// What is remembered of a frame.
    pub(super) fn record(&self, frame: usize) -> Option<&FrameRecord> {
        self.prompted.get(&frame).or_else(|| self.found.get(&frame))
    }

    /// The newest answer on a frame.
    pub(super) fn newest(&self, frame: usize) -> Option<&FrameRecord> {
        self.pending.get(&frame).or_else(|| self.record(frame))
    }

    /// The records that memory attention reads at a moment: all chosen frames with prompts share the last row of the
    /// temporal table, of `table` rows; recent frames have the others, the frame just left the first.
    pub(super) fn select(&self, moment: Moment, table: usize, most: Option<usize>) -> Selection {
        let chosen = closest(self.prompted.keys().copied().collect(), moment.frame, most);
        // A frame with prompts that was not chosen counts as any other.
        let other = |frame: &usize| {
            self.found.contains_key(frame)
                || (self.prompted.contains_key(frame) && !chosen.contains(frame))
        };
        let mut memories: Vec<(usize, i64)> =
            chosen.iter().map(|frame| (*frame, table as i64 - 1)).collect();
        let recent = (1..table).rev().filter_map(|age| Some((moment.back(age)?, age as i64 - 1)));
        memories.extend(recent.filter(|(frame, _)| other(frame)));
        let reach = moment.pointer_reach();
        let mut pointers: Vec<(usize, usize)> =
            chosen.iter().filter_map(|frame| Some((*frame, moment.distance(*frame)?))).collect();
        let recent = (1..reach).map_while(|distance| Some((moment.back(distance)?, distance)));
        pointers.extend(recent.filter(|(frame, _)| other(frame)));
        Selection { memories, pointers }
    }

    /// Remembers the answers to prompts. A frame that had been tracked counts as prompted only where corrections condition.
    pub(super) fn remember_prompts(&mut self, corrections: Corrections) {
        for (frame, record) in std::mem::take(&mut self.pending) {
            let passes = match corrections {
                Corrections::Pass => {
                    record.tracked.is_some() && !self.prompted.contains_key(&frame)
                }
                Corrections::Condition => false,
            };
            if passes {
                self.found.insert(frame, record);
            } else {
                self.found.remove(&frame);
                self.prompted.insert(frame, record);
            }
        }
    }

    /// Computes the keys of the selected memories that have none.
    pub(super) fn project<E>(
        &mut self,
        selection: &Selection,
        project: impl Fn(DeviceValue) -> Result<FrameMemory<DeviceValue>, E>,
    ) -> Result<(), E> {
        for (frame, _) in &selection.memories {
            let record = self.prompted.get_mut(frame).or_else(|| self.found.get_mut(frame));
            let Some(memory) = record.and_then(|record| record.memory.as_mut()) else { continue };
            if memory.keys.is_empty() {
                *memory = project(memory.memory.clone())?;
            }
        }
        Ok(())
    }

    /// Drops the keys of all memories but those of `kept` frames.
    pub(super) fn forget_keys(&mut self, kept: &[(usize, i64)]) {
        for (frame, record) in self.prompted.iter_mut().chain(&mut self.found) {
            if let Some(memory) = &mut record.memory
                && !kept.iter().any(|(kept, _)| kept == frame)
            {
                memory.keys.clear();
                memory.values.clear();
            }
        }
    }

    /// What memory attention reads of a selection.
    pub(super) fn recall(&self, selection: &Selection, moment: Moment, keys: Keys) -> Recalled {
        let mut bank = ObjectBank { frames: Vec::new(), pointers: Vec::new() };
        let (mut ages, mut distances) = (Vec::new(), Vec::new());
        for (frame, age) in &selection.memories {
            let Some(memory) = self.record(*frame).and_then(|record| record.memory.as_ref()) else {
                continue;
            };
            bank.frames.push(match keys {
                Keys::Kept => memory.clone(),
                Keys::Computed => FrameMemory {
                    memory: memory.memory.clone(),
                    keys: Vec::new(),
                    values: Vec::new(),
                },
            });
            ages.push(*age);
        }
        // A clip of one frame has no pointers to place.
        let most = moment.pointer_reach().saturating_sub(1).max(1) as f32;
        for (frame, distance) in &selection.pointers {
            if let Some(record) = self.record(*frame) {
                bank.pointers.push(record.pointer.clone());
                distances.push(*distance as f32 / most);
            }
        }
        Recalled { bank, ages, distances }
    }
}

/// Whether the keys of memories are kept from frame to frame, or computed by the program that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Kept,
    Computed,
}

/// The memories of one object that a frame attends to.
pub(super) struct Recalled {
    pub(super) bank: ObjectBank<DeviceValue>,
    /// Row of the temporal table of each memory.
    pub(super) ages: Vec<i64>,
    /// How far away in time each pointer is, from 0 to 1.
    pub(super) distances: Vec<f32>,
}

/// The frames with prompts that are read: all, or the last one before and the first one after, then the closest.
fn closest(frames: Vec<usize>, frame: usize, most: Option<usize>) -> Vec<usize> {
    let Some(most) = most.filter(|most| *most < frames.len()) else { return frames };
    let before = frames.iter().copied().filter(|other| *other < frame).max();
    let after = frames.iter().copied().filter(|other| *other >= frame).min();
    let mut chosen: Vec<usize> = before.into_iter().chain(after).take(most).collect();
    let mut rest: Vec<usize> = frames.into_iter().filter(|other| !chosen.contains(other)).collect();
    rest.sort_by_key(|other| other.abs_diff(frame));
    chosen.extend(rest.into_iter().take(most.saturating_sub(chosen.len())));
    chosen
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn record() -> FrameRecord {
        let scalar = Tensor::scalar(0f32);
        let pointer =
            DeviceValue::new(scalar.ty().clone(), Arc::new(scalar.clone()), Arc::default());
        FrameRecord {
            memory: None,
            pointer,
            logits: scalar,
            iou: 0.0,
            object_score: 0.0,
            tracked: None,
        }
    }

    fn object(prompted: &[usize], found: impl IntoIterator<Item = usize>) -> Object {
        Object {
            pending: BTreeMap::new(),
            prompted: prompted.iter().map(|frame| (*frame, record())).collect(),
            found: found.into_iter().map(|frame| (frame, record())).collect(),
        }
    }

    fn forward(frame: usize, length: Option<usize>) -> Moment {
        Moment { frame, direction: Direction::Forward, length, pointer_frames: 16 }
    }

    #[test]
    fn recent_frames_have_rows_by_their_age() {
        let object = object(&[0], 1..10);
        let selection = object.select(forward(10, None), 7, None);
        assert_eq!(selection.memories, [(0, 6), (4, 5), (5, 4), (6, 3), (7, 2), (8, 1), (9, 0)]);
        assert_eq!(selection.pointers[..3], [(0, 10), (9, 1), (8, 2)]);
        assert_eq!(selection.pointers.len(), 10);
    }

    #[test]
    fn backwards_the_frames_behind_are_later_ones() {
        let object = object(&[12], 6..12);
        let moment = Moment { direction: Direction::Backward, ..self::forward(8, Some(13)) };
        let selection = object.select(moment, 7, None);
        assert_eq!(selection.memories, [(12, 6), (11, 2), (10, 1), (9, 0)]);
        assert_eq!(selection.pointers, [(12, 4), (9, 1), (10, 2), (11, 3)]);
        let forward = object.select(forward(8, Some(13)), 7, None);
        // The prompted frame lies ahead: its memory is read, its pointer is not.
        assert_eq!(forward.memories, [(12, 6), (6, 1), (7, 0)]);
        assert_eq!(forward.pointers, [(7, 1), (6, 2)]);
    }

    #[test]
    fn pointers_are_placed_by_the_length_of_short_clips() {
        let object = object(&[0], 1..5);
        let moment = forward(3, Some(5));
        let selection = object.select(moment, 7, None);
        assert_eq!(selection.pointers, [(0, 3), (2, 1), (1, 2)]);
        assert_eq!(object.recall(&selection, moment, Keys::Kept).distances, [0.75, 0.25, 0.5]);
        let live = forward(3, None);
        assert_eq!(
            object.recall(&selection, live, Keys::Kept).distances,
            [0.2, 1.0 / 15.0, 2.0 / 15.0]
        );
    }

    #[test]
    fn the_closest_prompted_frames_are_chosen() {
        assert_eq!(closest(vec![0, 5, 9, 20, 40], 10, Some(3)), [9, 20, 5]);
        assert_eq!(closest(vec![0, 5], 10, Some(3)), [0, 5]);
        let object = object(&[0, 8, 9], [7]);
        let selection = object.select(forward(10, None), 7, Some(2));
        // Frame 8 is read as one of the recent frames.
        assert_eq!(selection.memories, [(9, 6), (8, 6), (7, 2)]);
        let selection = object.select(forward(10, None), 7, Some(1));
        assert_eq!(selection.memories, [(9, 6), (7, 2), (8, 1)]);
    }
}
