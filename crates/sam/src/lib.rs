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
//! println!("{} pixels, predicted IoU {}", masks.best().mask()?.area(), masks.best().iou());
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
//! for bus in scene.find("yellow bus")?.iter() {
//!     println!("{} at {}, {} pixels", bus.score(), bus.rect(), bus.mask()?.area());
//! }
//! let found = scene.find(Find::phrase("tram").and("bicycle").threshold(0.4))?;
//! if let Some(first) = found.iter().next() {
//!     let refined = Prompt::logits(first.segment().logits().clone()).not(40, 40);
//!     scene.segment(&refined)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A model is a [configuration](model::config::ModelConfig), weights and a backend; it runs [parts], the programs that
//! [components](crate) are assembled into. Only `device` names a backend.

mod bits;
mod components;
pub mod device;
mod everything;
mod find;
mod fleet;
mod loss;
mod masks;
mod measured;
pub mod model;
pub mod parts;
mod phrase_tracker;
mod pictures;
mod profiles;
mod prompt;
mod sam;
mod scene;
mod tracker;

pub use components::memory::MaskSource;
pub use components::prompt_encoder::PointKind;
pub use cutout_graph::{Device, MAX_THREADS, Precision, Profile, StoredProfile, TransferCounts};
pub use cutout_imaging as imaging;
pub use cutout_weights::layout::{Family, Identity};
pub use everything::{
    AutoMask, Everything, EverythingError, EverythingOptionError, MaskRecord, Phase, PixelBox,
    Progress, RleCounts, RleForm, RleRecord, metadata_csv,
};
pub use find::{Detection, Detections, Find, FindError, Found, RawDetections, VISUAL};
pub use fleet::{Devices, Fault, Faulty, Fleet, FleetAnswer, FleetError, FleetEvent};
pub use loss::{Loss, LossError, SceneAnswers};
pub use masks::{Masks, Segment};
pub use measured::{LEAST_INT8_IOU, MeasureError, MeasuredProfile};
pub use model::ModelError;
pub use model::builtin::{builtin_bytes, builtin_checkpoint};
pub use model::inspect::{Inside, Inspection, inspect};
pub use model::load::{ConfigError, OpenError, load, needed_weights};
pub use phrase_tracker::{
    PhraseFrame, PhraseObject, PhraseOptions, PhraseTrackError, PhraseTracker, TakenBack,
};
pub use profiles::{profile_beside, profile_path_beside, read_profile, stored_profile};
pub use prompt::text as prompt_text;
pub use prompt::{Candidates, Label, Point, Prompt, PromptError, Rect, TokenOrder};
pub use sam::{ExplainError, Sam, SamError};
pub use scene::{Scene, SceneFileError, SegmentError};
pub use tracker::{
    Corrections, Direction, History, Kept, ObjectId, StateNotes, TrackError, TrackOptions,
    TrackPrompt, TrackedFrame, TrackedObject, Tracker,
};
