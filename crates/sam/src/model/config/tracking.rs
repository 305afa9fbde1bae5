//! Rules by which the families track, outside the graphs.

use super::MemoryForm;
use crate::tracker::Corrections;

/// Which past frames memory attention reads besides prompted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecentFrames {
    /// The last ones.
    Last,
    /// The last ones on which the objects of a group were seen clearly, and the very last one.
    Clear,
}

/// Which objects share prompted frames and ratings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Each object is on its own.
    Alone,
    /// Objects that are first prompted before the same tracked frame: a frame with a prompt for one of them is a prompted
    /// frame of all.
    Together,
    /// Objects that are first prompted on one frame share a bucket. An object that was followed leaves it when it is prompted
    /// again.
    Buckets,
}

/// Which row of the temporal table the memories of prompted frames have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptedRows {
    /// The last one.
    Last,
    /// The last one, and for frames that recent frames could be at, another by distance: that of the frame one back is the last
    /// but one, of two back the one before it.
    ByDistance,
}

/// Rules of a family's tracker. A user's options can override some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackingRules {
    /// Most prompted frames that memory attention reads; `None` for all.
    pub(crate) most_prompted_frames: Option<usize>,
    pub(crate) corrections: Corrections,
    pub(crate) recent_frames: RecentFrames,
    pub(crate) grouping: Grouping,
    /// Whether clicks on a tracked frame read memories.
    pub(crate) clicks_attend: bool,
    /// Most points of a prompt, corners of the box included: of more, the first half and the last half of this number count.
    pub(crate) most_points: Option<usize>,
    /// Whether a pixel of a mask prompt is taken from the other masks given on the frame, and clicks ignore the logits of a mask
    /// until it is remembered.
    pub(crate) masks_compete: bool,
    pub(crate) prompted_rows: PromptedRows,
    /// Whether pointers of prompted frames ahead are read.
    pub(crate) pointers_ahead: bool,
    /// Whether clicks refine the mask that their frame has, and are answered anew otherwise.
    pub(crate) clicks_refine: bool,
    /// Whether masks from clicks are remembered as they are at the size of the video.
    pub(crate) masks_at_video_size: bool,
}

const SAM2: TrackingRules = TrackingRules {
    most_prompted_frames: None,
    corrections: Corrections::Pass,
    recent_frames: RecentFrames::Last,
    grouping: Grouping::Alone,
    clicks_attend: true,
    most_points: None,
    masks_compete: false,
    prompted_rows: PromptedRows::Last,
    pointers_ahead: false,
    clicks_refine: true,
    masks_at_video_size: false,
};

const SAM3: TrackingRules = TrackingRules {
    most_prompted_frames: Some(4),
    corrections: Corrections::Condition,
    recent_frames: RecentFrames::Clear,
    grouping: Grouping::Together,
    clicks_attend: false,
    most_points: Some(16),
    masks_compete: true,
    ..SAM2
};

const SAM3_1: TrackingRules = TrackingRules {
    recent_frames: RecentFrames::Last,
    grouping: Grouping::Buckets,
    most_points: None,
    prompted_rows: PromptedRows::ByDistance,
    pointers_ahead: true,
    clicks_refine: false,
    masks_at_video_size: true,
    ..SAM3
};

impl MemoryForm {
    /// Rules of the family.
    pub(crate) fn rules(self) -> TrackingRules {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => SAM2,
            MemoryForm::Sam3 => SAM3,
            MemoryForm::Sam3_1 => SAM3_1,
        }
    }
}
