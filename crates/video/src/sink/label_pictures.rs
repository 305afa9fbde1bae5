//! Masks as palette PNGs in the format of the DAVIS data set.

use std::path::Path;

use cutout_imaging::{Size, encode_labels};

use super::{FrameFolder, FrameResult, ObjectMask, Sink};
use crate::SinkError;

/// Writes a folder of `00000.png`, `00001.png`, … The value of a pixel is the number of its object; 0 is background. Where
/// objects overlap, the lowest number is used, as in Meta's tools.
pub struct LabelPictures {
    folder: FrameFolder,
}

impl LabelPictures {
    /// Creates the folder if it does not exist. A created folder is removed again if no frame is written.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, SinkError> {
        Ok(LabelPictures { folder: FrameFolder::create(folder.as_ref())? })
    }
}

impl Sink for LabelPictures {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        frame.check_sizes()?;
        let size = frame.image.size();
        let bytes = encode_labels(size, &labels(size, frame.objects)?)?;
        self.folder.write_picture(frame.index, &bytes)
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Object number of each pixel, u8 `[height, width]`.
fn labels(size: Size, objects: &[ObjectMask]) -> Result<Vec<u8>, SinkError> {
    let mut numbered = Vec::new();
    for object in objects {
        match u8::try_from(object.id) {
            Ok(0) | Err(_) => return Err(SinkError::ObjectId { id: object.id }),
            Ok(label) => numbered.push((label, &object.mask)),
        }
    }
    numbered.sort_by_key(|(label, _)| std::cmp::Reverse(*label));
    let mut labels = vec![0; size.width * size.height];
    for (label, mask) in numbered {
        // Runs are in column-major order.
        for pixel in mask.runs().flat_map(|(start, end)| start..end) {
            labels[pixel % size.height * size.width + pixel / size.height] = label;
        }
    }
    Ok(labels)
}
