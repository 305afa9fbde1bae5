//! Masks as COCO run lengths, one line of JSON per frame.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use cutout_imaging::{Size, WriteError};
use serde::Serialize;

use super::{FoundObject, FrameResult, ObjectMask, Sink};
use crate::SinkError;

/// Writes one line per frame, flushed before the next frame:
/// `{"frame":0,"objects":[{"id":1,"segmentation":{"size":[h,w],"counts":"…"},"score":…,"area":…,"bbox":[x,y,w,h]}]}`.
/// Objects that were found by a phrase also have the fields of [`FoundObject`]. An object that turns out to be none is a line of its
/// own: `{"taken_back":{"id":3,"first_frame":4,"last_frame":11}}`.
pub struct JsonLines {
    writer: Box<dyn Write + Send>,
    path: PathBuf,
}

impl JsonLines {
    /// Creates a file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, SinkError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| WriteError::new(path, source))?;
        Ok(JsonLines::new(file, path))
    }

    /// Continues a file after its first `lines` lines; with 0, as [`JsonLines::create`]. What follows them is removed. A file
    /// with fewer lines is an error.
    pub fn after(path: impl AsRef<Path>, lines: usize) -> Result<Self, SinkError> {
        let path = path.as_ref();
        if lines == 0 {
            return JsonLines::create(path);
        }
        let fail = |source| WriteError::new(path, source);
        let mut file = File::options().read(true).write(true).open(path).map_err(fail)?;
        let length = length_of(&file, lines).map_err(fail)?;
        file.set_len(length).and_then(|()| file.seek(SeekFrom::End(0))).map_err(fail)?;
        Ok(JsonLines::new(file, path))
    }

    /// Writes the lines to `writer`; `path` is its name in messages.
    pub fn new(writer: impl Write + Send + 'static, path: impl Into<PathBuf>) -> Self {
        JsonLines { writer: Box::new(writer), path: path.into() }
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), SinkError> {
        let fail = |source| WriteError::new(&self.path, source);
        let mut text = serde_json::to_vec(line).map_err(io::Error::from).map_err(fail)?;
        text.push(b'\n');
        self.writer.write_all(&text).and_then(|()| self.writer.flush()).map_err(fail)?;
        Ok(())
    }
}

/// Bytes of the first `lines` lines of a file.
fn length_of(file: &File, lines: usize) -> io::Result<u64> {
    let (mut reader, mut length, mut line) = (BufReader::new(file), 0, Vec::new());
    for found in 0..lines {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            let message = format!("it has {found} frames where {lines} were written");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        length += bytes as u64;
    }
    Ok(length)
}

impl Sink for JsonLines {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        let objects = frame.objects.iter().map(Record::new).collect();
        self.line(&Line { frame: frame.index, objects })
    }

    fn take_back(&mut self, id: u32, first: usize, last: usize) -> Result<(), SinkError> {
        let taken_back = TakenBack { id, first_frame: first, last_frame: last };
        self.line(&TakenBackLine { taken_back })
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

#[derive(Serialize)]
struct Line {
    frame: usize,
    objects: Vec<Record>,
}

#[derive(Serialize)]
struct TakenBackLine {
    taken_back: TakenBack,
}

#[derive(Serialize)]
struct TakenBack {
    id: u32,
    first_frame: usize,
    last_frame: usize,
}

#[derive(Serialize)]
struct Record {
    id: u32,
    segmentation: Segmentation,
    /// Serialised as `null` if it is NaN or infinite.
    score: f32,
    area: usize,
    /// Left, top, width, height; all 0 for an empty mask.
    bbox: [f64; 4],
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    found: Option<FoundObject>,
}

/// Run lengths in COCO's text form.
#[derive(Clone, Serialize)]
pub(super) struct Segmentation {
    /// Height, width.
    pub(super) size: [usize; 2],
    pub(super) counts: String,
}

impl Record {
    fn new(object: &ObjectMask) -> Self {
        let Size { width, height } = object.mask.size();
        let counts = object.mask.to_coco_string();
        Record {
            id: object.id,
            segmentation: Segmentation { size: [height, width], counts },
            score: object.score,
            area: object.mask.area(),
            bbox: object.mask.coco_box(),
            found: object.found.clone(),
        }
    }
}
