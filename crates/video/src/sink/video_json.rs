//! Masks of a whole video as one JSON file in the layout of YouTube-VIS: a COCO data set with one annotation per object.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use cutout_files::{PendingFile, TemporaryFolder};
use cutout_imaging::{Rle, Size, WriteError};
use serde::Serialize;

use super::json_lines::Segmentation;
use super::{FrameResult, ObjectMask, Sink};
use crate::SinkError;

/// Category of objects that were pointed at.
const OBJECT: &str = "object";

/// Writes `{"videos":[…],"categories":[…],"annotations":[…]}` when it is finished or dropped. An annotation has one entry per
/// frame in `segmentations` (COCO run lengths), `bboxes` and `areas`: `null` where the object is not seen. Phrases are the
/// categories.
///
/// Masks wait in a temporary file; memory holds sixteen bytes for each. Objects that were taken back are left out.
pub struct VideoJson {
    path: PathBuf,
    video: String,
    size: Option<Size>,
    /// Frames of the video, as far as they were written.
    length: usize,
    objects: BTreeMap<u32, Written>,
    categories: Vec<String>,
    /// `None` once the file is written.
    masks: Option<MaskFile>,
}

/// One object.
struct Written {
    category: usize,
    /// Sum of the confidence on the frames on which it is seen, or of the first detection.
    score: f64,
    /// Place of each mask: frame and offset.
    masks: Vec<(u32, u64)>,
}

/// Run lengths, one after the other: a length of four bytes, then the counts of COCO's text form.
struct MaskFile {
    file: File,
    end: u64,
    _folder: TemporaryFolder,
}

impl MaskFile {
    fn new() -> io::Result<Self> {
        let folder = TemporaryFolder::create()?;
        let path = folder.path().join("masks");
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(MaskFile { file, end: 0, _folder: folder })
    }

    /// Keeps a mask; returns its place.
    fn keep(&mut self, mask: &Rle) -> io::Result<u64> {
        let counts = mask.to_coco_string();
        let length = u32::try_from(counts.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_le_bytes()[..], counts.as_bytes()].concat();
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&bytes)?;
        let place = self.end;
        self.end += bytes.len() as u64;
        Ok(place)
    }

    fn read(&mut self, place: u64) -> io::Result<String> {
        let mut length = [0; 4];
        self.file.seek(SeekFrom::Start(place))?;
        self.file.read_exact(&mut length)?;
        let mut counts = vec![0; u32::from_le_bytes(length) as usize];
        self.file.read_exact(&mut counts)?;
        String::from_utf8(counts).map_err(io::Error::other)
    }
}

impl VideoJson {
    /// Begins a file, which appears when it is finished. `video` is the name of the video.
    pub fn create(path: impl Into<PathBuf>, video: &str) -> Result<Self, SinkError> {
        let path = path.into();
        let masks = MaskFile::new().map_err(|source| WriteError::new(&path, source))?;
        Ok(VideoJson {
            path,
            video: video.to_owned(),
            size: None,
            length: 0,
            objects: BTreeMap::new(),
            categories: Vec::new(),
            masks: Some(masks),
        })
    }

    fn add(&mut self, frame: usize, object: &ObjectMask) -> io::Result<()> {
        let Some(masks) = &mut self.masks else { return Ok(()) };
        if object.mask.area() == 0 {
            return Ok(());
        }
        let frame = u32::try_from(frame).map_err(io::Error::other)?;
        let place = masks.keep(&object.mask)?;
        let phrase = object.found.as_ref().and_then(|found| found.phrase.as_deref());
        let name = phrase.unwrap_or(OBJECT);
        let known = self.categories.iter().position(|other| other == name);
        let category = known.unwrap_or_else(|| {
            self.categories.push(name.to_owned());
            self.categories.len() - 1
        });
        let written = self.objects.entry(object.id);
        let written = written.or_insert(Written { category, score: 0.0, masks: Vec::new() });
        written.masks.push((frame, place));
        written.score += f64::from(match &object.found {
            Some(found) => found.detection_score,
            None => object.confidence(),
        });
        Ok(())
    }

    /// Writes the file.
    fn complete(&mut self) -> Result<(), SinkError> {
        let Some(mut masks) = self.masks.take() else { return Ok(()) };
        let fail = |source| WriteError::new(&self.path, source);
        Ok(self.write_to(&mut masks).map_err(fail)?)
    }

    fn write_to(&self, masks: &mut MaskFile) -> io::Result<()> {
        let mut file = PendingFile::create(&self.path)?;
        let Size { width, height } = self.size.unwrap_or(Size::new(0, 0));
        let name = |frame: usize| format!("{}/{frame:05}.jpg", self.video);
        let video = Video {
            id: 1,
            name: &self.video,
            width,
            height,
            length: self.length,
            file_names: (0..self.length).map(name).collect(),
        };
        let info = Info { description: "Made by cutout", version: env!("CARGO_PKG_VERSION") };
        writeln!(file, "{{\"info\":{},", serde_json::to_string(&info)?)?;
        writeln!(file, "\"videos\":[{}],", serde_json::to_string(&video)?)?;
        let category =
            |(index, name): (usize, &String)| Category { id: index + 1, name: name.clone() };
        let categories: Vec<Category> = self.categories.iter().enumerate().map(category).collect();
        write!(file, "\"categories\":{},\n\"annotations\":[", serde_json::to_string(&categories)?)?;
        for (position, (id, written)) in self.objects.iter().enumerate() {
            let annotation = self.annotation(*id, written, masks)?;
            let separator = if position == 0 { "\n" } else { ",\n" };
            write!(file, "{separator}{}", serde_json::to_string(&annotation)?)?;
        }
        writeln!(file, "]}}")?;
        file.finish()
    }

    fn annotation(
        &self,
        id: u32,
        written: &Written,
        masks: &mut MaskFile,
    ) -> io::Result<Annotation> {
        let size = self.size.unwrap_or(Size::new(0, 0));
        let mut annotation = Annotation {
            id,
            video_id: 1,
            category_id: written.category + 1,
            iscrowd: 0,
            width: size.width,
            height: size.height,
            length: self.length,
            score: written.score / written.masks.len() as f64,
            segmentations: vec![None; self.length],
            bboxes: vec![None; self.length],
            areas: vec![None; self.length],
        };
        for (frame, place) in &written.masks {
            let counts = masks.read(*place)?;
            let mask = Rle::from_coco_string(size, &counts).map_err(io::Error::other)?;
            let frame = *frame as usize;
            annotation.bboxes[frame] = Some(mask.coco_box());
            annotation.areas[frame] = Some(mask.area());
            let size = [size.height, size.width];
            annotation.segmentations[frame] = Some(Segmentation { size, counts });
        }
        Ok(annotation)
    }
}

impl Sink for VideoJson {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        frame.check_sizes()?;
        let (found, expected) = (frame.image.size(), *self.size.get_or_insert(frame.image.size()));
        if found != expected {
            let (path, frame) = (self.path.clone(), frame.index);
            return Err(SinkError::FrameSize { path, frame, expected, found });
        }
        self.length = self.length.max(frame.index + 1);
        for object in frame.objects {
            self.add(frame.index, object).map_err(|source| WriteError::new(&self.path, source))?;
        }
        Ok(())
    }

    fn take_back(&mut self, id: u32, _first: usize, _last: usize) -> Result<(), SinkError> {
        self.objects.remove(&id);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.complete()
    }
}

impl Drop for VideoJson {
    fn drop(&mut self) {
        let _ignored = self.complete();
    }
}

#[derive(Serialize)]
struct Info {
    description: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Video<'a> {
    id: u32,
    name: &'a str,
    width: usize,
    height: usize,
    length: usize,
    file_names: Vec<String>,
}

#[derive(Serialize)]
struct Category {
    id: usize,
    name: String,
}

#[derive(Serialize)]
struct Annotation {
    id: u32,
    video_id: u32,
    category_id: usize,
    iscrowd: u8,
    width: usize,
    height: usize,
    length: usize,
    score: f64,
    segmentations: Vec<Option<Segmentation>>,
    bboxes: Vec<Option<[f64; 4]>>,
    areas: Vec<Option<usize>>,
}
