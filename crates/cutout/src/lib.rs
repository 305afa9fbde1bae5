//! The Segment Anything models (SAM 1, 2 and 3): masks from clicks, boxes, earlier masks and phrases, in pictures and video.
//!
//! A click. [`Sam::builtin`] needs no file; [`Sam::open`] reads a published checkpoint of any family.
//!
//! ```no_run
//! use cutout::{Prompt, Sam, imaging};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sam = Sam::builtin()?;
//! let image = imaging::open("examples/still-life.jpg", &imaging::DecodeLimits::default())?;
//! let scene = sam.embed(&image)?; // slow, once per picture
//! let masks = scene.segment(&Prompt::point(200, 280))?; // fast, as often as needed
//! println!("{} pixels, predicted IoU {:.2}", masks.best().mask()?.area(), masks.best().iou());
//! # Ok(())
//! # }
//! ```
//!
//! A phrase, which needs a checkpoint of SAM 3:
//!
//! ```no_run
//! use cutout::{Find, Sam, imaging};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = imaging::open("street.jpg", &imaging::DecodeLimits::default())?;
//! let scene = Sam::open("sam3.pt")?.embed(&image)?;
//! for bus in scene.find(Find::phrase("yellow bus").threshold(0.4))?.iter() {
//!     println!("{:.2} at {}, {} pixels", bus.score(), bus.rect(), bus.mask()?.area());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | task | start here | result |
//! |---|---|---|
//! | open a model | [`Sam::open`], [`Sam::open_with`] a [`Profile`], [`Sam::builtin`] | [`Sam`] |
//! | embed pictures | [`Sam::embed`], [`Sam::embed_all`] | [`Scene`] |
//! | many pictures on several GPUs | [`Fleet::open`] with [`Devices`], [`Fleet::run`] | [`FleetEvent`]s, in the order of the pictures |
//! | points, boxes, earlier masks | [`Scene::segment`] with a [`Prompt`] | [`Masks`] of [`Segment`]s |
//! | phrases and exemplars (SAM 3) | [`Scene::find`] with a [`Find`] | [`Found`], [`Detections`], [`Detection`] |
//! | all objects of a picture | [`Scene::everything`] with [`Everything`] | [`AutoMask`]s |
//! | objects through a video (SAM 2 and 3, the built-in model) | [`Sam::track`] with [`TrackOptions`] | [`Tracker`], [`TrackedFrame`] |
//! | every object of a phrase through a video (SAM 3) | [`Sam::track_phrases`] with [`PhraseOptions`] | [`PhraseTracker`], [`PhraseFrame`] |
//! | keep an embedding | [`Scene::save`], [`Sam::load_scene`] | a file, [`Scene`] |
//! | read and write pictures and masks | [`imaging`] | [`imaging::Image`], [`imaging::Mask`], [`imaging::Rle`] |
//! | read clips, write masks frame by frame | [`video`] | [`video::FrameSource`], [`video::Sink`] |
//!
//! Coordinates are pixels of the original picture: x to the right, y down, from the upper left corner. The crate reads no
//! environment variables and prints nothing. It has no cargo features: all families, file formats and instruction sets are
//! built, and selected at run time.

pub mod imaging;
pub mod video;

// Models.
#[doc(inline)]
pub use cutout_sam::{
    Device, Family, Identity, MAX_THREADS, Precision, Profile, Sam, TransferCounts, profile_beside,
    read_profile,
};

// One model on several devices.
#[doc(inline)]
pub use cutout_sam::{Devices, Fault, Faulty, Fleet, FleetAnswer, FleetError, FleetEvent};

// Scenes, prompts and masks.
#[doc(inline)]
pub use cutout_sam::{Candidates, Label, Masks, Point, Prompt, Rect, Scene, Segment};

// Phrases and exemplars.
#[doc(inline)]
pub use cutout_sam::{Detection, Detections, Find, Found, RawDetections};

// Automatic masks.
#[doc(inline)]
pub use cutout_sam::{
    AutoMask, Everything, MaskRecord, Phase, PixelBox, Progress, RleCounts, RleForm, RleRecord,
    metadata_csv,
};

// Video.
#[doc(inline)]
pub use cutout_sam::{
    Corrections, Direction, History, Kept, ObjectId, StateNotes, TrackOptions, TrackPrompt,
    TrackedFrame, TrackedObject, Tracker,
};

// Phrases in video.
#[doc(inline)]
pub use cutout_sam::{PhraseFrame, PhraseObject, PhraseOptions, PhraseTracker, TakenBack};

// Errors.
#[doc(inline)]
pub use cutout_graph::ProfileError;
#[doc(inline)]
pub use cutout_sam::device::DeviceError;
#[doc(inline)]
pub use cutout_sam::model::tokenizer::PhraseError;
#[doc(inline)]
pub use cutout_sam::{
    EverythingError, EverythingOptionError, ExplainError, FindError, ModelError, OpenError,
    PhraseTrackError, PromptError, SamError, SceneFileError, SegmentError, TrackError,
};

// Low-resolution logits and raw detections.
#[doc(inline)]
pub use cutout_tensor::{DType, Shape, Tensor, TensorError};

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
