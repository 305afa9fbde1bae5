//! Masks read back from the files that sinks wrote.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use cutout_imaging::{ImageError, Mask, Rle, Size};
use png::{BitDepth, ColorType, Decoder, Limits};
use serde::Deserialize;

use super::folder::frame_file;
use super::{FrameFolder, ObjectMask};
use crate::SinkError;

/// The longest line of a [`JsonLines`](crate::JsonLines) file that is read.
const LONGEST_LINE: u64 = 1 << 30;

/// The masks of frames that were written, read in the order in which they were written.
pub struct WrittenMasks {
    path: PathBuf,
    /// The lines that follow; `None` for a folder of palette PNGs.
    lines: Option<BufReader<File>>,
}

impl WrittenMasks {
    /// Opens a file of [`JsonLines`](crate::JsonLines), or a folder of [`LabelPictures`](crate::LabelPictures). A palette
    /// PNG has one object per pixel: where objects overlap, only the one with the lowest number is read back.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, SinkError> {
        let path = path.into();
        if path.is_dir() {
            return Ok(WrittenMasks { path, lines: None });
        }
        let file = File::open(&path).map_err(|error| unreadable(&path, error))?;
        Ok(WrittenMasks { path, lines: Some(BufReader::new(file)) })
    }

    /// The objects of frame `index`, which has this size. In a file of lines, it must be the next one.
    pub fn frame(&mut self, index: usize, size: Size) -> Result<Vec<ObjectMask>, SinkError> {
        match &mut self.lines {
            Some(lines) => line_objects(&self.path, lines, index, size),
            None => picture_objects(&frame_file(&self.path, index, FrameFolder::PICTURE), size),
        }
    }
}

fn unreadable(path: &Path, reason: impl ToString) -> SinkError {
    SinkError::ReadBack { path: path.to_owned(), reason: reason.to_string() }
}

#[derive(Deserialize)]
struct Line {
    frame: usize,
    objects: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    id: u32,
    segmentation: Segmentation,
    /// `null` where it was NaN or infinite.
    score: Option<f32>,
}

#[derive(Deserialize)]
struct Segmentation {
    size: [usize; 2],
    counts: String,
}

fn line_objects(
    path: &Path,
    lines: &mut BufReader<File>,
    index: usize,
    size: Size,
) -> Result<Vec<ObjectMask>, SinkError> {
    let fail = |reason: String| unreadable(path, reason);
    let mut text = Vec::new();
    let mut limited = io::Read::take(lines, LONGEST_LINE);
    limited.read_until(b'\n', &mut text).map_err(|error| fail(error.to_string()))?;
    let line: Line = serde_json::from_slice(&text)
        .map_err(|error| fail(format!("the line of frame {index}: {error}")))?;
    if line.frame != index {
        return Err(fail(format!("it has frame {} where frame {index} was written", line.frame)));
    }
    let object = |record: Record| {
        let Segmentation { size: found, counts } = record.segmentation;
        if found != [size.height, size.width] {
            return Err(fail(format!("frame {index} is {size}, its mask {found:?}")));
        }
        let mask = Rle::from_coco_string(size, &counts)
            .map_err(|error| fail(format!("frame {index}: {error}")))?;
        Ok(ObjectMask { id: record.id, mask, score: record.score.unwrap_or(f32::NAN), found: None })
    };
    line.objects.into_iter().map(object).collect()
}

fn picture_objects(path: &Path, size: Size) -> Result<Vec<ObjectMask>, SinkError> {
    let labels = read_labels(path, size)?;
    let mut present = [false; 256];
    labels.iter().for_each(|label| present[usize::from(*label)] = true);
    let object = |label: u8| {
        let pixels = labels.iter().map(|found| *found == label).collect();
        let mask = Mask::from_pixels(size, pixels)?;
        Ok(ObjectMask { id: label.into(), mask: Rle::from_mask(&mask)?, score: 0.0, found: None })
    };
    let labels = (1..=u8::MAX).filter(|label| present[usize::from(*label)]);
    labels.map(object).collect::<Result<_, ImageError>>().map_err(|error| unreadable(path, error))
}

/// Object number of each pixel, u8 `[height, width]`.
fn read_labels(path: &Path, size: Size) -> Result<Vec<u8>, SinkError> {
    let fail = |error: png::DecodingError| unreadable(path, error);
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let pixels = size.width * size.height;
    let limits = Limits { bytes: pixels + (1 << 20) };
    let decoder = Decoder::new_with_limits(BufReader::new(file), limits);
    let mut reader = decoder.read_info().map_err(fail)?;
    let info = reader.info();
    let found = Size::new(info.width as usize, info.height as usize);
    let is_palette = (info.color_type, info.bit_depth) == (ColorType::Indexed, BitDepth::Eight);
    if found != size || !is_palette {
        return Err(unreadable(path, format!("it is no palette PNG of {size}")));
    }
    let mut labels = vec![0; pixels];
    reader.next_frame(&mut labels).map_err(fail)?;
    Ok(labels)
}
