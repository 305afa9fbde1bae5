//! The Segment Anything models and their public API.
//!
//! ```no_run
//! use cutout_sam::{Prompt, Sam, imaging};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sam = Sam::open("sam_vit_b_01ec64.pth")?;
//! let image = imaging::open("truck.jpg", &imaging::DecodeLimits::default())?;
//! let scene = sam.embed(&image)?;
//! let masks = scene.segment(&Prompt::point(520, 380).not(40, 40))?;
//! println!("{} pixels, predicted IoU {}", masks.best().mask().area(), masks.best().iou());
//! # Ok(())
//! # }
//! ```
//!
//! SAM 3 finds every object of a phrase:
//!
//! ```no_run
//! use cutout_sam::{Find, Prompt, Sam, imaging};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = imaging::open("street.jpg", &imaging::DecodeLimits::default())?;
//! let scene = Sam::open("sam3.pt")?.embed(&image)?;
//! for bus in scene.find("yellow bus")?.instances() {
//!     println!("{} at {}, {} pixels", bus.score(), bus.rect(), bus.mask().area());
//! }
//! let found = scene.find(Find::phrase("tram").and("bicycle").threshold(0.4))?;
//! if let Some(first) = found.instances().next() {
//!     let refined = Prompt::logits(first.segment().logits().clone()).not(40, 40);
//!     scene.segment(&refined)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Components are graphs built by functions from values to values; `sam1`, `sam2` and `sam3` assemble them. Only `device` names a backend.

mod builtin;
mod checkpoint;
pub mod config;
pub mod decoder;
mod detector;
pub mod device;
mod everything;
mod find;
mod fusion_encoder;
mod geometry_encoder;
mod holes;
mod image_encoder;
mod inspect;
mod layers;
pub mod mask_choice;
mod mask_decoder;
mod masks;
pub mod memory;
mod multi_head;
mod network;
mod programs;
mod prompt;
pub mod prompt_encoder;
mod sam;
pub mod sam1;
pub mod sam2;
pub mod sam3;
mod scene;
mod segmentation_head;
mod sine_positions;
mod text_encoder;
pub mod tokenizer;
mod tracker;
mod two_way_transformer;

pub use checkpoint::OpenError;
pub use cutout_graph::{Device, Precision, Profile};
pub use cutout_imaging as imaging;
pub use cutout_weights::layout::{Family, Identity};
pub use everything::{
    AutoMask, Everything, EverythingError, EverythingOptionError, MaskRecord, Phase, PixelBox,
    Progress, RleCounts, RleForm, RleRecord, metadata_csv,
};
pub use find::{Answer, Detection, Find, FindError, Found, Instance, VISUAL};
pub use inspect::{Config, Inside, Inspection, inspect, runs};
pub use masks::{Masks, Segment};
pub use network::{Decoded, Embedding, PromptBatch, Sam1};
pub use programs::ModelError;
pub use prompt::{Candidates, Label, Point, Prompt, PromptError, Rect, TokenOrder};
pub use sam::{ExplainError, Sam, SamError, profile_beside, read_profile};
pub use scene::{Scene, SceneFileError, SegmentError};
pub use tracker::{
    Corrections, Direction, History, ObjectId, TrackError, TrackOptions, TrackPrompt, TrackedFrame,
    TrackedObject, Tracker,
};

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
