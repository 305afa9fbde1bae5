//! What a tracker keeps between frames. It is bounded by what memory attention can read, not by the length of the video.

use cutout_graph::{DeviceValue, Ports, flatten};

use super::bucket::{Bucket, BucketRecord};
use super::object::{FrameRecord, Object, ShownMask};
use super::{Current, Tracker};
use crate::model::config::Grouping;
use crate::parts::{Encoded, FrameFeatures, FrameMemory};

/// What a tracker keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Objects that are followed.
    pub objects: usize,
    /// Frames with prompts, summed over the objects.
    pub prompted_frames: usize,
    /// Other frames that can be read again, summed over the objects.
    pub recent_frames: usize,
    /// Frames whose answers are held back.
    pub held_back: usize,
    /// Bytes of all masks, memories and pointers, and of the features of the current frame.
    pub bytes: usize,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kept { objects, prompted_frames, recent_frames, held_back, bytes } = self;
        let mib = *bytes as f64 / f64::from(1 << 20);
        write!(
            out,
            "{objects} objects, {prompted_frames} prompted and {recent_frames} recent memories, {held_back} answers held back, {mib:.1} MiB"
        )
    }
}

impl Tracker {
    /// What is kept now.
    pub fn kept(&self) -> Kept {
        let records = self.objects.values().flat_map(Object::records);
        let apart = self.rules.grouping == Grouping::Buckets;
        let features = self.current.as_ref().map_or(0, |current| current.bytes(apart));
        let empty = self.open_group.empty.values().cloned().map(bytes_of::<FrameMemory<()>>);
        let buckets = self.buckets.values().map(Bucket::bytes).sum::<usize>();
        Kept {
            objects: self.objects.len(),
            prompted_frames: self.objects.values().map(Object::prompted_count).sum(),
            recent_frames: self.objects.values().map(|object| object.frames.tracked.len()).sum(),
            held_back: 0,
            bytes: records.map(FrameRecord::bytes).sum::<usize>()
                + features
                + empty.sum::<usize>()
                + buckets,
        }
    }
}

impl Object {
    fn records(&self) -> impl Iterator<Item = &FrameRecord> {
        let prompted = self.frames.prompted.values().chain(self.frames.pending.values());
        prompted.chain(self.filled_frames.values()).chain(self.frames.tracked.values())
    }

    fn prompted_count(&self) -> usize {
        self.frames.prompted.len() + self.frames.pending.len() + self.filled_frames.len()
    }
}

impl FrameRecord {
    fn bytes(&self) -> usize {
        let mask = self.shown.as_ref().map_or(0, ShownMask::bytes);
        let memory = self.memory.clone().map_or(0, bytes_of::<FrameMemory<()>>);
        let pointer = self.pointer.as_ref().map_or(0, |pointer| pointer.ty().bytes());
        self.logits.ty().bytes() + pointer + mask + memory
    }
}

impl Bucket {
    fn bytes(&self) -> usize {
        let kinds = [&self.frames.pending, &self.frames.prompted, &self.frames.tracked];
        let of = |record: &BucketRecord| {
            let memory = record.memory.clone().map_or(0, bytes_of::<FrameMemory<()>>);
            record.pointers.ty().bytes() + memory
        };
        kinds.into_iter().flat_map(std::collections::BTreeMap::values).map(of).sum()
    }
}

impl Current {
    /// `apart`: whether prompts are answered from other features than objects are followed from.
    fn bytes(&self, apart: bool) -> usize {
        let trunk = self.encoded.trunk.clone().map_or(0, bytes_of::<Encoded<()>>);
        let prompting = self.encoded.prompting.as_ref().map_or(0, |prompting| {
            let features = bytes_of::<FrameFeatures<()>>(prompting.features.clone());
            prompting.embedding.ty().bytes() + if apart { features } else { 0 }
        });
        bytes_of::<FrameFeatures<()>>(self.encoded.features.clone()) + trunk + prompting
    }
}

/// Bytes of all values of a structure.
fn bytes_of<P: Ports>(ports: P::Of<DeviceValue>) -> usize {
    flatten::<P, _>(ports).iter().map(|value| value.ty().bytes()).sum()
}
