//! What a tracker keeps between frames. It is bounded by what memory attention can read, not by the length of the video.

use cutout_graph::{DeviceValue, Ports, flatten};

use super::object::{FrameRecord, Object};
use super::{Current, Tracker};
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
        let features = self.current.as_ref().map_or(0, Current::bytes);
        let empty = self.open_group.empty.values().cloned().map(bytes_of::<FrameMemory<()>>);
        Kept {
            objects: self.objects.len(),
            prompted_frames: self.objects.values().map(Object::prompted_count).sum(),
            recent_frames: self.objects.values().map(|object| object.tracked_frames.len()).sum(),
            held_back: 0,
            bytes: records.map(FrameRecord::bytes).sum::<usize>() + features + empty.sum::<usize>(),
        }
    }
}

impl Object {
    fn records(&self) -> impl Iterator<Item = &FrameRecord> {
        let prompted = self.prompted_frames.values().chain(self.pending_prompts.values());
        prompted.chain(self.filled_frames.values()).chain(self.tracked_frames.values())
    }

    fn prompted_count(&self) -> usize {
        self.prompted_frames.len() + self.pending_prompts.len() + self.filled_frames.len()
    }
}

impl FrameRecord {
    fn bytes(&self) -> usize {
        let mask = self.mask.as_ref().map_or(0, |mask| mask.pixels().len());
        let memory = self.memory.clone().map_or(0, bytes_of::<FrameMemory<()>>);
        self.logits.ty().bytes() + self.pointer.ty().bytes() + mask + memory
    }
}

impl Current {
    fn bytes(&self) -> usize {
        let trunk = self.encoded.trunk.clone().map_or(0, bytes_of::<Encoded<()>>);
        let embedding = self.encoded.embedding.ty().bytes();
        bytes_of::<FrameFeatures<()>>(self.encoded.features.clone()) + trunk + embedding
    }
}

/// Bytes of all values of a structure.
fn bytes_of<P: Ports>(ports: P::Of<DeviceValue>) -> usize {
    flatten::<P, _>(ports).iter().map(|value| value.ty().bytes()).sum()
}
