//! Frames of a clip in a file of a private temporary folder, as raw bytes.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cutout_files::TemporaryFolder;
use cutout_imaging::{Image, Size};

use super::lock;
use crate::problem::Problem;

const FRAMES: &str = "frames.rgb";
const HISTORY: &str = "history";

/// Frames that can be read in any order.
pub(crate) struct Frames {
    file: Mutex<File>,
    /// Removed with everything in it when the clip is dropped.
    folder: TemporaryFolder,
    size: Size,
    count: usize,
    rate: Option<f64>,
}

/// Frames that are being written.
pub(crate) struct FrameWriter {
    writer: BufWriter<File>,
    folder: TemporaryFolder,
    size: Option<Size>,
    count: usize,
    most_frames: usize,
    most_bytes: u64,
}

pub(crate) fn disk(error: &io::Error) -> Problem {
    Problem::Internal(format!("the temporary folder: {error}"))
}

impl FrameWriter {
    pub(crate) fn new(most_frames: usize, most_bytes: u64) -> Result<Self, Problem> {
        let folder = TemporaryFolder::create().map_err(|error| disk(&error))?;
        let path = folder.path().join(FRAMES);
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let writer = BufWriter::new(file.map_err(|error| disk(&error))?);
        Ok(FrameWriter { writer, folder, size: None, count: 0, most_frames, most_bytes })
    }

    /// A path in the folder of the frames.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a frame. An error for one of another size, and beyond the limits.
    pub(crate) fn add(&mut self, image: &Image) -> Result<(), Problem> {
        let size = *self.size.get_or_insert(image.size());
        let wrong = |text: String| Err(Problem::Invalid(text));
        let count = self.count;
        if image.size() != size {
            let found = image.size();
            return wrong(format!("frame {count} has {found}, the frames before it have {size}"));
        }
        if count >= self.most_frames {
            return wrong(format!("the clip has more than {} frames", self.most_frames));
        }
        let bytes = image.as_rgb();
        if (count as u64 + 1) * bytes.len() as u64 > self.most_bytes {
            let (most, size) = (self.most_bytes, image.size());
            return wrong(format!("{} frames of {size} are more than {most} bytes", count + 1));
        }
        self.writer.write_all(bytes).map_err(|error| disk(&error))?;
        self.count += 1;
        Ok(())
    }

    pub(crate) fn finish(self, rate: Option<f64>) -> Result<Frames, Problem> {
        let FrameWriter { writer, folder, size, count, .. } = self;
        let size = size.ok_or_else(|| Problem::Invalid("the clip has no frames".to_owned()))?;
        let file = writer.into_inner().map_err(|error| disk(error.error()))?;
        Ok(Frames { file: Mutex::new(file), folder, size, count, rate })
    }
}

impl Frames {
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Frames per second, if it is known.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Bytes of all frames.
    pub(crate) fn bytes(&self) -> u64 {
        (self.size.width * self.size.height * 3) as u64 * self.count as u64
    }

    /// The folder in which a tracker keeps what is out of its reach.
    pub(crate) fn history(&self) -> Result<PathBuf, Problem> {
        let path = self.folder.path().join(HISTORY);
        std::fs::create_dir_all(&path).map_err(|error| disk(&error))?;
        Ok(path)
    }

    /// Bytes that a tracker has kept.
    pub(crate) fn history_bytes(&self) -> u64 {
        fn bytes_in(folder: &Path) -> u64 {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
                Ok(found) if found.is_dir() => bytes_in(&entry.path()),
                Ok(found) => found.len(),
                Err(_) => 0,
            };
            entries.map(bytes).sum()
        }
        bytes_in(&self.folder.path().join(HISTORY))
    }

    /// Removes what a tracker has kept.
    pub(crate) fn clear_history(&self) {
        // There may be none; what cannot be removed now is removed with the folder.
        let _ignored = std::fs::remove_dir_all(self.folder.path().join(HISTORY));
    }

    /// A frame. `index` is below the number of frames.
    pub(crate) fn read(&self, index: usize) -> Result<Image, Problem> {
        let length = 3 * self.size.pixels(3)?;
        let mut bytes = vec![0; length];
        let mut file = lock(&self.file);
        file.seek(SeekFrom::Start(index as u64 * length as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|error| disk(&error))?;
        drop(file);
        Ok(Image::from_rgb(self.size, bytes)?)
    }
}
