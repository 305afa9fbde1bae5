//! Automatic mask generation: masks of everything in a picture.
//!
//! A grid of points is decoded into three masks per point. Low-IoU, unstable and duplicate masks are dropped. The
//! masks and their order are those of Meta's `SamAutomaticMaskGenerator`. Masks are run-length encoded as they are
//! decoded, so memory holds the logits of one batch only. A GPU makes the full-size masks itself and sends bits.
//!
//! ```text
//! crops ──embed──▶ scene ──points, in batches──▶ logits ──IoU──▶ rows at full size ──stability, edges──▶ runs
//!                                                                                     │ boxes suppressed in the crop
//!                          small regions removed ◀── boxes suppressed across crops ◀──┘
//! ```

use std::ops::ControlFlow;

use cutout_imaging::{Bounds, Image, Rect, Rle};

use crate::prompt::Point;
use crate::sam::Sam;
use crate::scene::{Scene, SegmentError};

mod crops;
mod full_size;
mod generate;
mod grid;
mod options;
mod records;
mod small_regions;

pub use options::{Everything, EverythingOptionError};
pub use records::{MaskRecord, RleCounts, RleForm, RleRecord, metadata_csv};

use generate::{Reporter, generate};

/// One mask of many, at the size of the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoMask {
    /// The mask.
    pub rle: Rle,
    /// Pixels set.
    pub area: usize,
    /// Bounding box.
    pub bbox: PixelBox,
    /// IoU predicted by the model.
    pub predicted_iou: f32,
    /// The point prompt.
    pub point_coords: Point,
    /// IoU of the mask at a raised and a lowered threshold; NaN for an empty mask that no filter removed.
    pub stability_score: f32,
    /// The crop that the mask was found in.
    pub crop_box: PixelBox,
}

/// A box as Meta writes it: from the upper left, width and height are the differences of the corners. A mask's corners
/// are pixels, so that a box around one pixel has width 0; a crop's right and bottom are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PixelBox {
    /// Left.
    pub x: usize,
    /// Top.
    pub y: usize,
    /// Right minus left.
    pub width: usize,
    /// Bottom minus top.
    pub height: usize,
}

impl PixelBox {
    /// Box around a mask; empty at the origin for an empty mask.
    fn around(bounds: Option<Bounds>) -> Self {
        bounds.map_or_else(PixelBox::default, |b| PixelBox {
            x: b.left,
            y: b.top,
            width: b.right - b.left,
            height: b.bottom - b.top,
        })
    }

    /// The same box elsewhere.
    fn shifted(self, x: usize, y: usize) -> Self {
        PixelBox { x: self.x + x, y: self.y + y, ..self }
    }

    /// Left, top, right, bottom.
    fn corners(self) -> [usize; 4] {
        [self.x, self.y, self.x + self.width, self.y + self.height]
    }

    fn rect(self) -> Rect {
        let [x0, y0, x1, y1] = self.corners().map(|place| place as f32);
        Rect { x0, y0, x1, y1 }
    }

    /// Left, top, width, height.
    pub fn xywh(self) -> [usize; 4] {
        [self.x, self.y, self.width, self.height]
    }
}

/// Stage of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A crop is about to be embedded.
    Embedding,
    /// Points are being decoded.
    Decoding,
    /// Small regions are being removed.
    Cleaning,
}

/// Progress of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stage of the generator.
    pub phase: Phase,
    /// Points decoded.
    pub points_done: usize,
    /// Points of all crops.
    pub points: usize,
    /// Crops that are finished.
    pub crops_done: usize,
    /// Crops, the whole picture among them.
    pub crops: usize,
    /// Masks so far. Duplicates are suppressed when their crop is finished.
    pub masks: usize,
}

/// Why there are no automatic masks.
#[derive(Debug, thiserror::Error)]
pub enum EverythingError {
    /// An option is wrong, or does not fit the picture.
    #[error(transparent)]
    Option(#[from] EverythingOptionError),
    /// Crops of a scene, which has no pixels.
    #[error(
        "crop_n_layers is {0}, but a scene has no picture to take crops from: use Sam::everything"
    )]
    CropsNeedThePicture(usize),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// The model cannot answer.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl Scene {
    /// Every mask in the picture, without crops.
    pub fn everything(&self, options: &Everything) -> Result<Vec<AutoMask>, EverythingError> {
        self.everything_with(options, &mut |_| ControlFlow::Continue(()))
    }

    /// Like [`Scene::everything`]; `progress` is called as the work advances and can stop it.
    pub fn everything_with(
        &self,
        options: &Everything,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Vec<AutoMask>, EverythingError> {
        if options.crop_n_layers > 0 {
            return Err(EverythingError::CropsNeedThePicture(options.crop_n_layers));
        }
        generate(self.size(), self.sam().pool(), options, Reporter::new(progress), |_| {
            Ok(self.clone())
        })
    }
}

impl Sam {
    /// Every mask in a picture, and in its crops if the options ask for them; `progress` is called as the work advances
    /// and can stop it.
    pub fn everything(
        &self,
        image: &Image,
        options: &Everything,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Vec<AutoMask>, EverythingError> {
        generate(image.size(), self.pool(), options, Reporter::new(progress), |crop| {
            if crop.is_whole(image.size()) {
                return self.embed(image);
            }
            self.embed(&image.crop(crop.left, crop.top, crop.size())?)
        })
    }
}
