//! One object: its records by frame, and the selection of memories.

use std::collections::{BTreeMap, BTreeSet};

use cutout_graph::DeviceValue;
use cutout_imaging::Mask;
use cutout_tensor::Tensor;

use super::group::GroupId;
use super::history::Sighting;
use super::options::Direction;
use crate::parts::{FrameMemory, ObjectBank};

/// How a frame is rated that memory attention may read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rated {
    /// Not at all: it has or had prompts.
    #[default]
    No,
    /// By the means over the objects of its group.
    Tracked,
    /// By the mean of the objects' ratings.
    ByObject,
}

/// Mask, pointer and memory of an object on one frame.
#[derive(Clone)]
pub(super) struct FrameRecord {
    /// `None` until the tracker leaves the frame. Keys are cached while memory attention reads them and they fit the
    /// limit.
    pub(super) memory: Option<FrameMemory<DeviceValue>>,
    /// `f32[1, width]`.
    pub(super) pointer: DeviceValue,
    /// `f32[side, side]`, on the host.
    pub(super) logits: Tensor,
    pub(super) iou: f32,
    pub(super) object_score: f32,
    /// Direction in which the frame was last tracked; `None` for a frame that was only prompted.
    pub(super) tracked: Option<Direction>,
    pub(super) rated: Rated,
    /// The mask prompt whose answer this is, until it is remembered.
    pub(super) mask: Option<Mask>,
}

impl FrameRecord {
    pub(super) fn sighting(&self) -> Sighting {
        Sighting { object_score: self.object_score, iou: self.iou, rated: self.rated }
    }
}

/// One object. Memory attention reads `prompted_frames` and `tracked_frames` only.
#[derive(Default)]
pub(super) struct Object {
    pub(super) group: GroupId,
    /// Frames on which this object has prompts itself.
    pub(super) own_prompts: BTreeSet<usize>,
    /// Results of prompts given since the last tracked frame.
    pub(super) pending_prompts: BTreeMap<usize, FrameRecord>,
    /// What becomes of this object on frames with pending prompts of others in its group.
    pub(super) filled_frames: BTreeMap<usize, FrameRecord>,
    /// Frames with prompts, of this object or of others in its group.
    pub(super) prompted_frames: BTreeMap<usize, FrameRecord>,
    /// Frames tracked without prompts.
    pub(super) tracked_frames: BTreeMap<usize, FrameRecord>,
}

/// Current frame, direction and length of the video.
#[derive(Clone, Copy)]
pub(super) struct TrackPosition {
    pub(super) frame: usize,
    pub(super) direction: Direction,
    /// Number of frames, if it is known.
    pub(super) length: Option<usize>,
    /// Frames that object pointers reach back to in a long video, this one included.
    pub(super) pointer_frames: usize,
}

impl TrackPosition {
    /// Whether a frame can have been tracked before. Where the clip begins, SAM 3 rates none.
    pub(super) fn is_behind(self, frame: usize) -> bool {
        match self.direction {
            Direction::Forward => 0 < frame && frame < self.frame,
            Direction::Backward => frame > self.frame,
        }
    }

    /// The frame tracked `distance` steps earlier.
    pub(super) fn back(self, distance: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.frame.checked_sub(distance),
            Direction::Backward => {
                let frame = self.frame.checked_add(distance)?;
                (self.length.is_none_or(|length| frame < length)).then_some(frame)
            }
        }
    }

    /// Steps since a frame was tracked; `None` for a frame still ahead.
    fn distance(self, frame: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.frame.checked_sub(frame),
            Direction::Backward => frame.checked_sub(self.frame),
        }
    }

    /// Object pointers reach back to fewer frames than this.
    pub(super) fn pointer_reach(self) -> usize {
        self.length.map_or(self.pointer_frames, |length| length.min(self.pointer_frames))
    }
}

/// Frames whose memories and pointers memory attention reads.
pub(super) struct Selection {
    /// Frames with their row of the temporal table.
    pub(super) memories: Vec<(usize, i64)>,
    /// Frames with their distance in time.
    pub(super) pointers: Vec<(usize, usize)>,
}

/// What memory attention reads of the past.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// Rows of the temporal table.
    pub(super) table: usize,
    /// Most prompted frames; `None` for all.
    pub(super) most: Option<usize>,
    /// Past frames, oldest first; `None` for the last ones.
    pub(super) recent: Option<&'a [usize]>,
}

impl Reading<'_> {
    /// The frame of this rank: 1 for the last one.
    fn ranked(self, rank: usize, position: TrackPosition) -> Option<usize> {
        match self.recent {
            None => position.back(rank),
            Some(frames) => frames.len().checked_sub(rank).map(|index| frames[index]),
        }
    }

    /// Frames whose pointers are read, with their ranks. Of chosen frames the oldest is left out, as in Meta's code.
    fn pointers(self, position: TrackPosition) -> impl Iterator<Item = (usize, usize)> {
        let reach = position.pointer_reach();
        let end = self.recent.map_or(reach, |frames| reach.min(frames.len()));
        (1..end).map_while(move |rank| Some((self.ranked(rank, position)?, rank)))
    }
}

impl Object {
    /// The prompted record of a frame that no tracked frame follows yet.
    pub(super) fn pending(&self, frame: usize) -> Option<&FrameRecord> {
        self.pending_prompts.get(&frame)
    }

    /// Drops prompted frames that are not read again on the way: objects that are renewed get one after the other. If the way
    /// goes back later, the first ones are kept for it.
    pub(super) fn forget_far_prompts(&mut self, way: Direction, most: usize, goes_back: bool) {
        let first = if goes_back && way == Direction::Forward { most } else { 0 };
        while self.prompted_frames.len() > most + first {
            let far = match way {
                Direction::Forward => self.prompted_frames.keys().nth(first),
                Direction::Backward => self.prompted_frames.keys().next_back(),
            };
            let Some(far) = far.copied() else { return };
            self.prompted_frames.remove(&far);
            self.own_prompts.remove(&far);
        }
    }

    /// The record of a frame.
    pub(super) fn record(&self, frame: usize) -> Option<&FrameRecord> {
        self.prompted_frames.get(&frame).or_else(|| self.tracked_frames.get(&frame))
    }

    /// The newest answer on a frame.
    pub(super) fn newest(&self, frame: usize) -> Option<&FrameRecord> {
        self.pending_prompts.get(&frame).or_else(|| self.record(frame))
    }

    /// The records that memory attention reads at a position: all chosen frames with prompts share the last row of the
    /// temporal table; recent frames have the others, the last of them the first.
    pub(super) fn select(&self, position: TrackPosition, reading: Reading<'_>) -> Selection {
        let Reading { table, most, .. } = reading;
        let chosen = closest(self.prompted_frames.keys().copied().collect(), position.frame, most);
        // Prompted frames that are not chosen count as tracked frames.
        let other = |frame: &usize| {
            self.tracked_frames.contains_key(frame)
                || (self.prompted_frames.contains_key(frame) && !chosen.contains(frame))
        };
        let mut memories: Vec<(usize, i64)> =
            chosen.iter().map(|frame| (*frame, table as i64 - 1)).collect();
        let ranked = |rank: usize| Some((reading.ranked(rank, position)?, rank as i64 - 1));
        memories.extend((1..table).rev().filter_map(ranked).filter(|(frame, _)| other(frame)));
        let mut pointers: Vec<(usize, usize)> =
            chosen.iter().filter_map(|frame| Some((*frame, position.distance(*frame)?))).collect();
        pointers.extend(reading.pointers(position).filter(|(frame, _)| other(frame)));
        Selection { memories, pointers }
    }

    /// Computes the keys of the selected memories that have none.
    pub(super) fn project<E>(
        &mut self,
        selection: &Selection,
        project: impl Fn(DeviceValue) -> Result<FrameMemory<DeviceValue>, E>,
    ) -> Result<(), E> {
        for (frame, _) in &selection.memories {
            let record =
                self.prompted_frames.get_mut(frame).or_else(|| self.tracked_frames.get_mut(frame));
            let Some(memory) = record.and_then(|record| record.memory.as_mut()) else { continue };
            if memory.keys.is_empty() {
                *memory = project(memory.memory.clone())?;
            }
        }
        Ok(())
    }

    /// Drops the keys of all memories but those of `kept` frames.
    pub(super) fn forget_keys(&mut self, kept: &[(usize, i64)]) {
        for (frame, record) in self.prompted_frames.iter_mut().chain(&mut self.tracked_frames) {
            if let Some(memory) = &mut record.memory
                && !kept.iter().any(|(kept, _)| kept == frame)
            {
                memory.keys.clear();
                memory.values.clear();
            }
        }
    }

    /// The memories and pointers of a selection.
    pub(super) fn read_memories(
        &self,
        selection: &Selection,
        position: TrackPosition,
        keys: Keys,
    ) -> SelectedMemories {
        let mut bank = ObjectBank { frames: Vec::new(), pointers: Vec::new() };
        let (mut ages, mut distances) = (Vec::new(), Vec::new());
        for (frame, age) in &selection.memories {
            let Some(memory) = self.record(*frame).and_then(|record| record.memory.as_ref()) else {
                continue;
            };
            bank.frames.push(match keys {
                Keys::Kept => memory.clone(),
                Keys::Computed => FrameMemory::plain(memory.memory.clone(), memory.image.clone()),
            });
            ages.push(*age);
        }
        // A clip of one frame has no pointers to place.
        let most = position.pointer_reach().saturating_sub(1).max(1) as f32;
        for (frame, distance) in &selection.pointers {
            if let Some(record) = self.record(*frame) {
                bank.pointers.push(record.pointer.clone());
                distances.push(*distance as f32 / most);
            }
        }
        SelectedMemories { bank, ages, distances }
    }
}

/// Whether keys of memories are cached between frames or computed by the tracking program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Kept,
    Computed,
}

/// The memories of one object that a frame attends to.
pub(super) struct SelectedMemories {
    pub(super) bank: ObjectBank<DeviceValue>,
    /// Row of the temporal table of each memory.
    pub(super) ages: Vec<i64>,
    /// Temporal distance of each pointer, from 0 to 1.
    pub(super) distances: Vec<f32>,
}

/// At most `most` of the prompted frames: the last one before `frame`, the first one after it, then the closest.
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
            rated: Rated::Tracked,
            mask: None,
        }
    }

    fn object(prompted: &[usize], found: impl IntoIterator<Item = usize>) -> Object {
        Object {
            prompted_frames: prompted.iter().map(|frame| (*frame, record())).collect(),
            tracked_frames: found.into_iter().map(|frame| (frame, record())).collect(),
            ..Object::default()
        }
    }

    fn reading(most: Option<usize>) -> Reading<'static> {
        Reading { table: 7, most, recent: None }
    }

    fn forward(frame: usize, length: Option<usize>) -> TrackPosition {
        TrackPosition { frame, direction: Direction::Forward, length, pointer_frames: 16 }
    }

    #[test]
    fn recent_frames_have_rows_by_their_age() {
        let object = object(&[0], 1..10);
        let selection = object.select(forward(10, None), reading(None));
        assert_eq!(selection.memories, [(0, 6), (4, 5), (5, 4), (6, 3), (7, 2), (8, 1), (9, 0)]);
        assert_eq!(selection.pointers[..3], [(0, 10), (9, 1), (8, 2)]);
        assert_eq!(selection.pointers.len(), 10);
    }

    #[test]
    fn backwards_the_frames_behind_are_later_ones() {
        let object = object(&[12], 6..12);
        let position =
            TrackPosition { direction: Direction::Backward, ..self::forward(8, Some(13)) };
        let selection = object.select(position, reading(None));
        assert_eq!(selection.memories, [(12, 6), (11, 2), (10, 1), (9, 0)]);
        assert_eq!(selection.pointers, [(12, 4), (9, 1), (10, 2), (11, 3)]);
        let forward = object.select(forward(8, Some(13)), reading(None));
        // The prompted frame lies ahead: its memory is read, its pointer is not.
        assert_eq!(forward.memories, [(12, 6), (6, 1), (7, 0)]);
        assert_eq!(forward.pointers, [(7, 1), (6, 2)]);
    }

    #[test]
    fn pointers_are_placed_by_the_length_of_short_clips() {
        let object = object(&[0], 1..5);
        let position = forward(3, Some(5));
        let selection = object.select(position, reading(None));
        assert_eq!(selection.pointers, [(0, 3), (2, 1), (1, 2)]);
        assert_eq!(
            object.read_memories(&selection, position, Keys::Kept).distances,
            [0.75, 0.25, 0.5]
        );
        let live = forward(3, None);
        assert_eq!(
            object.read_memories(&selection, live, Keys::Kept).distances,
            [0.2, 1.0 / 15.0, 2.0 / 15.0]
        );
    }

    #[test]
    fn the_closest_prompted_frames_are_chosen() {
        assert_eq!(closest(vec![0, 5, 9, 20, 40], 10, Some(3)), [9, 20, 5]);
        assert_eq!(closest(vec![0, 5], 10, Some(3)), [0, 5]);
        let object = object(&[0, 8, 9], [7]);
        let selection = object.select(forward(10, None), reading(Some(2)));
        // Frame 8 is read as one of the recent frames.
        assert_eq!(selection.memories, [(9, 6), (8, 6), (7, 2)]);
        let selection = object.select(forward(10, None), reading(Some(1)));
        assert_eq!(selection.memories, [(9, 6), (7, 2), (8, 1)]);
    }

    #[test]
    fn prompted_frames_that_are_not_read_again_are_dropped() {
        let left = |way, goes_back| {
            let mut object = object(&[0, 4, 8, 12, 16, 20], []);
            object.forget_far_prompts(way, 2, goes_back);
            object.prompted_frames.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(left(Direction::Forward, false), [16, 20]);
        assert_eq!(left(Direction::Forward, true), [0, 4, 16, 20]);
        assert_eq!(left(Direction::Backward, true), [0, 4]);
    }

    #[test]
    fn chosen_frames_have_rows_by_their_rank() {
        let object = object(&[0, 12], 1..12);
        let recent = [2, 3, 5, 8, 12];
        let reading = Reading { recent: Some(&recent), ..reading(Some(4)) };
        let selection = object.select(forward(13, None), reading);
        // Frame 12 has prompts and is read once; there are only five ranks.
        assert_eq!(selection.memories, [(0, 6), (12, 6), (2, 4), (3, 3), (5, 2), (8, 1)]);
        // The pointer of the oldest one is not read.
        assert_eq!(selection.pointers, [(0, 13), (12, 1), (8, 2), (5, 3), (3, 4)]);
        let none = Reading { recent: Some(&[]), ..reading };
        let selection = object.select(forward(0, None), none);
        assert_eq!(selection.memories, [(0, 6), (12, 6)]);
        assert_eq!(selection.pointers, [(0, 0)]);
    }
}
