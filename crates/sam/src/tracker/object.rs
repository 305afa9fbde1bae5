//! One object: its records by frame.

use std::collections::{BTreeMap, BTreeSet};

use cutout_graph::DeviceValue;
use cutout_imaging::Mask;
use cutout_tensor::Tensor;

use super::group::GroupId;
use super::options::Direction;
use super::timeline::{Recalled, Timeline};
use crate::parts::FrameMemory;

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
    /// `f32[1, width]`; `None` for an object of a bucket that was followed: the bucket has the pointers of all its objects.
    pub(super) pointer: Option<DeviceValue>,
    /// `f32[side, side]`, on the host.
    pub(super) logits: Tensor,
    pub(super) iou: f32,
    pub(super) object_score: f32,
    /// Direction in which the frame was last tracked; `None` for a frame that was only prompted.
    pub(super) tracked: Option<Direction>,
    pub(super) rated: Rated,
    /// The mask at the size of the video, until it is remembered.
    pub(super) shown: Option<ShownMask>,
}

/// A mask at the size of the video, from which other masks take pixels.
#[derive(Clone)]
pub(super) enum ShownMask {
    /// It was given.
    Given(Mask),
    /// It answers clicks: low-resolution logits, and the pixels that were taken.
    Answered { logits: Tensor, taken: Option<Mask> },
}

impl ShownMask {
    pub(super) fn is_given(&self) -> bool {
        matches!(self, ShownMask::Given(_))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            ShownMask::Given(mask) => mask.pixels().len(),
            ShownMask::Answered { logits, taken } => {
                logits.ty().bytes() + taken.as_ref().map_or(0, |mask| mask.pixels().len())
            }
        }
    }
}

impl Recalled for FrameRecord {
    fn memory(&self) -> Option<&FrameMemory<DeviceValue>> {
        self.memory.as_ref()
    }

    fn memory_mut(&mut self) -> Option<&mut FrameMemory<DeviceValue>> {
        self.memory.as_mut()
    }

    fn pointer(&self) -> Option<&DeviceValue> {
        self.pointer.as_ref()
    }
}

/// One object.
#[derive(Default)]
pub(super) struct Object {
    pub(super) group: GroupId,
    /// Its slot, if the group is a bucket.
    pub(super) slot: usize,
    /// Frames on which this object has prompts itself.
    pub(super) own_prompts: BTreeSet<usize>,
    /// What becomes of this object on frames with pending prompts of others in its group.
    pub(super) filled_frames: BTreeMap<usize, FrameRecord>,
    pub(super) frames: Timeline<FrameRecord>,
}

impl Object {
    /// The prompted record of a frame that no tracked frame follows yet.
    pub(super) fn pending(&self, frame: usize) -> Option<&FrameRecord> {
        self.frames.pending.get(&frame)
    }

    /// The record of a frame.
    pub(super) fn record(&self, frame: usize) -> Option<&FrameRecord> {
        self.frames.record(frame)
    }

    /// The newest answer on a frame.
    pub(super) fn newest(&self, frame: usize) -> Option<&FrameRecord> {
        self.frames.newest(frame)
    }
}
