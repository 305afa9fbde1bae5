//! Boxes as text in the layout of the MOT Challenge.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use cutout_files::replace;
use cutout_imaging::WriteError;

use super::{FrameResult, Sink};
use crate::SinkError;

/// Writes one line per frame and object that is seen, flushed before the next frame:
/// `frame,id,left,top,width,height,confidence,-1,-1,-1`. As in the MOT Challenge, frames are counted from 1. Objects that were
/// taken back are removed when the file is finished.
pub struct MotText {
    path: PathBuf,
    file: File,
    taken_back: BTreeSet<u32>,
}

impl MotText {
    /// Creates a file.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, SinkError> {
        let path = path.into();
        let file = File::create(&path).map_err(|source| WriteError::new(&path, source))?;
        Ok(MotText { path, file, taken_back: BTreeSet::new() })
    }
}

impl Sink for MotText {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        let mut text = String::new();
        for object in frame.objects.iter().filter(|object| object.mask.area() > 0) {
            let [left, top, width, height] = object.mask.coco_box();
            let (number, id, confidence) = (frame.index + 1, object.id, object.confidence());
            text +=
                &format!("{number},{id},{left},{top},{width},{height},{confidence:.6},-1,-1,-1\n");
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        Ok(written.map_err(|source| WriteError::new(&self.path, source))?)
    }

    fn take_back(&mut self, id: u32, _first: usize, _last: usize) -> Result<(), SinkError> {
        self.taken_back.insert(id);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        let MotText { path, file, taken_back } = *self;
        drop(file);
        let is_file = fs::metadata(&path).is_ok_and(|found| found.is_file());
        if taken_back.is_empty() || !is_file {
            return Ok(());
        }
        let fail = |source| WriteError::new(&path, source);
        let lines = File::open(&path).map_err(fail)?;
        replace(&path, fail, |out| copy_without(&taken_back, lines, out).map_err(fail))?;
        Ok(())
    }
}

/// Copies all lines but those of some objects.
fn copy_without(objects: &BTreeSet<u32>, lines: File, out: &mut impl Write) -> io::Result<()> {
    for line in BufReader::new(lines).lines() {
        let line = line?;
        let id = line.split(',').nth(1).and_then(|id| id.parse().ok());
        if !id.is_some_and(|id| objects.contains(&id)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
