//! What memory attention reads of the past: records by frame, and the selection of memories.

use std::collections::BTreeMap;

use cutout_graph::DeviceValue;

use super::options::Direction;
use crate::model::config::PromptedRows;
use crate::parts::{FrameMemory, ObjectBank};

/// What memory attention reads of a frame.
pub(super) trait Recalled {
    fn memory(&self) -> Option<&FrameMemory<DeviceValue>>;
    fn memory_mut(&mut self) -> Option<&mut FrameMemory<DeviceValue>>;
    fn pointer(&self) -> Option<&DeviceValue>;
}

/// Records by frame, of an object or of a bucket of objects. Memory attention reads `prompted` and `tracked` only.
pub(super) struct Timeline<R> {
    /// Results of prompts given since the last tracked frame.
    pub(super) pending: BTreeMap<usize, R>,
    /// Frames with prompts, of this object or of others in its group.
    pub(super) prompted: BTreeMap<usize, R>,
    /// Frames tracked without prompts.
    pub(super) tracked: BTreeMap<usize, R>,
}

impl<R> Default for Timeline<R> {
    fn default() -> Self {
        let [pending, prompted, tracked] = std::array::from_fn(|_| BTreeMap::new());
        Timeline { pending, prompted, tracked }
    }
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

    /// How many frames before the current one, in the direction of tracking, a frame lies; `None` if it lies after it.
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
    pub(super) rows: PromptedRows,
    /// Whether pointers of prompted frames ahead are read.
    pub(super) pointers_ahead: bool,
}

impl Reading<'_> {
    /// The frame of this rank: 1 for the last one.
    fn ranked(self, rank: usize, position: TrackPosition) -> Option<usize> {
        match self.recent {
            None => position.back(rank),
            Some(frames) => frames.len().checked_sub(rank).map(|index| frames[index]),
        }
    }

    /// Row of the temporal table of a prompted frame so far behind; `None` for one ahead.
    fn row(self, distance: Option<usize>) -> i64 {
        let last = self.table as i64 - 1;
        match (self.rows, distance) {
            (PromptedRows::ByDistance, Some(distance)) if 0 < distance && distance < self.table => {
                last - distance as i64
            }
            (PromptedRows::Last | PromptedRows::ByDistance, _) => last,
        }
    }

    /// Frames whose pointers are read, with their ranks. If frames were selected by score, the oldest of them is not read, as in
    /// Meta's code.
    fn pointers(self, position: TrackPosition) -> impl Iterator<Item = (usize, usize)> {
        let reach = position.pointer_reach();
        let end = self.recent.map_or(reach, |frames| reach.min(frames.len()));
        (1..end).map_while(move |rank| Some((self.ranked(rank, position)?, rank)))
    }
}

impl<R: Recalled> Timeline<R> {
    /// Drops prompted frames that are not read again on the way: objects that are renewed get one after the other. If the way
    /// goes back later, the first ones are kept for it.
    pub(super) fn forget_far_prompts(&mut self, way: Direction, most: usize, goes_back: bool) {
        let first = if goes_back && way == Direction::Forward { most } else { 0 };
        while self.prompted.len() > most + first {
            let far = match way {
                Direction::Forward => self.prompted.keys().nth(first),
                Direction::Backward => self.prompted.keys().next_back(),
            };
            let Some(far) = far.copied() else { return };
            self.prompted.remove(&far);
        }
    }

    /// The record of a frame.
    pub(super) fn record(&self, frame: usize) -> Option<&R> {
        self.prompted.get(&frame).or_else(|| self.tracked.get(&frame))
    }

    /// The record of a frame, to change it.
    pub(super) fn record_mut(&mut self, frame: usize) -> Option<&mut R> {
        self.prompted.get_mut(&frame).or_else(|| self.tracked.get_mut(&frame))
    }

    /// The newest answer on a frame.
    pub(super) fn newest(&self, frame: usize) -> Option<&R> {
        self.pending.get(&frame).or_else(|| self.record(frame))
    }

    /// The records that memory attention reads at a position: chosen frames with prompts, then recent frames, of which the last
    /// has the first row of the temporal table.
    pub(super) fn select(&self, position: TrackPosition, reading: Reading<'_>) -> Selection {
        let Reading { table, most, .. } = reading;
        let chosen = closest(self.prompted.keys().copied().collect(), position.frame, most);
        // Prompted frames that are not chosen count as tracked frames.
        let other = |frame: &usize| {
            self.tracked.contains_key(frame)
                || (self.prompted.contains_key(frame) && !chosen.contains(frame))
        };
        let row = |frame: &usize| (*frame, reading.row(position.distance(*frame)));
        let mut memories: Vec<(usize, i64)> = chosen.iter().map(row).collect();
        let ranked = |rank: usize| Some((reading.ranked(rank, position)?, rank as i64 - 1));
        memories.extend((1..table).rev().filter_map(ranked).filter(|(frame, _)| other(frame)));
        let ahead = |frame: usize| reading.pointers_ahead.then(|| frame.abs_diff(position.frame));
        let distance = |frame: usize| position.distance(frame).or_else(|| ahead(frame));
        let mut pointers: Vec<(usize, usize)> =
            chosen.iter().filter_map(|frame| Some((*frame, distance(*frame)?))).collect();
        pointers.extend(reading.pointers(position).filter(|(frame, _)| other(frame)));
        Selection { memories, pointers }
    }

    /// Computes the keys of the selected memories that have none.
    pub(super) fn project<E>(
        &mut self,
        selection: &Selection,
        project: impl Fn(FrameMemory<DeviceValue>) -> Result<FrameMemory<DeviceValue>, E>,
    ) -> Result<(), E> {
        for (frame, _) in &selection.memories {
            let Some(memory) = self.record_mut(*frame).and_then(Recalled::memory_mut) else {
                continue;
            };
            if memory.keys.is_empty() {
                let projected = project(memory.clone())?;
                memory.keys = projected.keys;
                memory.values = projected.values;
            }
        }
        Ok(())
    }

    /// Drops the keys of all memories but those of `kept` frames.
    pub(super) fn forget_keys(&mut self, kept: &[(usize, i64)]) {
        for (frame, record) in self.prompted.iter_mut().chain(&mut self.tracked) {
            if let Some(memory) = record.memory_mut()
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
            let Some(memory) = self.record(*frame).and_then(Recalled::memory) else { continue };
            bank.frames.push(match keys {
                Keys::Kept => memory.clone(),
                Keys::Computed => FrameMemory::plain(memory.memory.clone(), memory.image.clone()),
            });
            ages.push(*age);
        }
        // A clip of one frame has no pointers to place.
        let most = position.pointer_reach().saturating_sub(1).max(1) as f32;
        for (frame, distance) in &selection.pointers {
            if let Some(pointer) = self.record(*frame).and_then(Recalled::pointer) {
                bank.pointers.push(pointer.clone());
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

    use cutout_tensor::Tensor;

    use super::*;

    /// A record with a pointer.
    struct Pointer(DeviceValue);

    impl Recalled for Pointer {
        fn memory(&self) -> Option<&FrameMemory<DeviceValue>> {
            None
        }

        fn memory_mut(&mut self) -> Option<&mut FrameMemory<DeviceValue>> {
            None
        }

        fn pointer(&self) -> Option<&DeviceValue> {
            Some(&self.0)
        }
    }

    fn record() -> Pointer {
        let scalar = Tensor::scalar(0f32);
        Pointer(DeviceValue::new(scalar.ty().clone(), Arc::new(scalar.clone()), Arc::default()))
    }

    fn object(prompted: &[usize], found: impl IntoIterator<Item = usize>) -> Timeline<Pointer> {
        Timeline {
            prompted: prompted.iter().map(|frame| (*frame, record())).collect(),
            tracked: found.into_iter().map(|frame| (frame, record())).collect(),
            ..Timeline::default()
        }
    }

    fn reading(most: Option<usize>) -> Reading<'static> {
        let rows = PromptedRows::Last;
        Reading { table: 7, most, recent: None, rows, pointers_ahead: false }
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
            object.prompted.into_keys().collect::<Vec<_>>()
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

    #[test]
    fn prompted_frames_have_rows_by_their_distance_in_sam_3_1() {
        let object = object(&[0, 3, 8, 9], 4..8);
        let rows = PromptedRows::ByDistance;
        let reading = Reading { rows, pointers_ahead: true, ..reading(Some(4)) };
        let selection = object.select(forward(9, None), reading);
        // Frame 9 is this one; frames 8 and 3 are one and six back; frame 0 is too far to have a row of its own.
        assert_eq!(selection.memories[..4], [(0, 6), (3, 0), (8, 5), (9, 6)]);
        assert_eq!(selection.memories[4..], [(4, 4), (5, 3), (6, 2), (7, 1)]);
        let selection = object.select(forward(2, None), reading);
        assert_eq!(selection.memories, [(0, 4), (3, 6), (8, 6), (9, 6)]);
        assert_eq!(selection.pointers, [(0, 2), (3, 1), (8, 6), (9, 7)]);
    }
}
