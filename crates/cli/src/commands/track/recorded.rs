//! Frames that are read more than once: from the source if it has random access, otherwise from temporary files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cutout_files::TemporaryFolder;
use cutout_imaging::{Image, Size};
use cutout_video::{FrameSource, IndexedFrames, Prefetch};

/// A source whose frames can be read again.
pub(super) struct Recorded {
    source: Prefetch,
    indexed: Option<Arc<dyn IndexedFrames>>,
    /// Frames taken from the source so far.
    taken: usize,
    files: Option<Files>,
}

impl Recorded {
    /// Wraps a source; `again` says whether frames will be read more than once.
    pub(super) fn new(source: Box<dyn FrameSource>, again: bool) -> Result<Self> {
        let indexed = if again { source.indexed() } else { None };
        let files = (again && indexed.is_none()).then(Files::new).transpose()?;
        Ok(Recorded { source: Prefetch::new(source)?, indexed, taken: 0, files })
    }

    /// Returns an error for a frame beyond the known length.
    pub(super) fn check(&self, frame: usize) -> Result<()> {
        match self.indexed.as_ref().map(|indexed| indexed.length()) {
            Some(length) if frame >= length => {
                bail!("{}: there is no frame {frame} (of {length}, from 0)", self.source.name())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Reads a frame by number. If `again` is false, the numbers must increase.
    pub(super) fn frame(&mut self, frame: usize) -> Result<Image> {
        self.check(frame)?;
        if let Some(indexed) = &self.indexed {
            return Ok(indexed.frame(frame)?);
        }
        if let Some(files) = &self.files
            && frame < self.taken
        {
            return files.read(frame);
        }
        loop {
            let Some(image) = self.take()? else {
                bail!("{}: the video ends after {} frames", self.source.name(), self.taken);
            };
            if let Some(files) = &mut self.files {
                files.write(self.taken - 1, &image)?;
            }
            if self.taken == frame + 1 {
                return Ok(image);
            }
        }
    }

    /// Reads the source up to a frame, which is the next that [`Recorded::after`] follows.
    pub(super) fn skip_to(&mut self, frame: usize) -> Result<()> {
        if self.indexed.is_none() && frame >= self.taken {
            self.frame(frame)?;
        }
        Ok(())
    }

    /// The frame after `frame`, which was the last one read; `None` at the end. It is not kept for reading again.
    pub(super) fn after(&mut self, frame: usize) -> Result<Option<Image>> {
        match &self.indexed {
            Some(indexed) if frame + 1 < indexed.length() => Ok(Some(indexed.frame(frame + 1)?)),
            Some(_) => Ok(None),
            None => self.take(),
        }
    }

    fn take(&mut self) -> Result<Option<Image>> {
        let Some(image) = self.source.next() else { return Ok(None) };
        self.taken += 1;
        Ok(Some(image?))
    }
}

/// Frames as raw bytes in a temporary folder, removed on drop.
struct Files {
    folder: TemporaryFolder,
    size: Option<Size>,
}

impl Files {
    fn new() -> Result<Self> {
        let folder = TemporaryFolder::create().context("cannot make a temporary folder")?;
        Ok(Files { folder, size: None })
    }

    fn path(&self, frame: usize) -> PathBuf {
        self.folder.path().join(format!("{frame}.rgb"))
    }

    fn write(&mut self, frame: usize, image: &Image) -> Result<()> {
        let path = self.path(frame);
        self.size = Some(image.size());
        fs::write(&path, image.as_rgb()).with_context(|| path.display().to_string())
    }

    fn read(&self, frame: usize) -> Result<Image> {
        let path = self.path(frame);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let size = self.size.context("no frame was kept")?;
        Ok(Image::from_rgb(size, bytes)?)
    }
}
