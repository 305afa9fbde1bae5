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
}

const SAM2: TrackingRules = TrackingRules {
    most_prompted_frames: None,
    corrections: Corrections::Pass,
    recent_frames: RecentFrames::Last,
    grouping: Grouping::Alone,
    clicks_attend: true,
    most_points: None,
    masks_compete: false,
};

const SAM3: TrackingRules = TrackingRules {
    most_prompted_frames: Some(4),
    corrections: Corrections::Condition,
    recent_frames: RecentFrames::Clear,
    grouping: Grouping::Together,
    clicks_attend: false,
    most_points: Some(16),
    masks_compete: true,
};

impl MemoryForm {
    /// Rules of the family.
    pub(crate) fn rules(self) -> TrackingRules {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => SAM2,
            MemoryForm::Sam3 => SAM3,
        }
    }
}
