//! A folder of images as a clip.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cutout_imaging::{DecodeLimits, EXTENSIONS, Image, Size, is_picture_name};

use super::order;
use crate::{FrameSource, IndexedFrames, VideoError};

/// Images in the order of their names, decoded one at a time.
pub(super) struct Pictures {
    files: Arc<Files>,
    name: String,
    next: usize,
}

/// The files of a clip, and the size of the first decoded frame, which all others must have.
struct Files {
    folder: PathBuf,
    paths: Vec<PathBuf>,
    limits: DecodeLimits,
    first: OnceLock<(usize, Size)>,
}

impl Pictures {
    pub(super) fn open(folder: &Path, limits: DecodeLimits) -> Result<Self, VideoError> {
        let paths = list(folder)?;
        Ok(Pictures::new(folder, paths, limits))
    }

    pub(super) fn single(path: &Path, limits: DecodeLimits) -> Self {
        Pictures::new(path, vec![path.to_owned()], limits)
    }

    fn new(folder: &Path, paths: Vec<PathBuf>, limits: DecodeLimits) -> Self {
        let first = OnceLock::new();
        let files = Files { folder: folder.to_owned(), paths, limits, first };
        Pictures { files: Arc::new(files), name: folder.display().to_string(), next: 0 }
    }
}

/// The frames of a folder, in order: numbers (as in Meta's `00000.jpg`) by value, other names in natural order.
fn list(folder: &Path) -> Result<Vec<PathBuf>, VideoError> {
    let unreadable = |source| VideoError::Read { name: folder.display().to_string(), source };
    let mut frames = Vec::new();
    let mut others = 0;
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_frame(&path) {
            frames.push((stem(&path), path));
        } else {
            others += 1;
        }
    }
    if frames.is_empty() {
        let extensions = extensions();
        return Err(VideoError::EmptyFolder { path: folder.to_owned(), others, extensions });
    }
    sort(&mut frames, |path| path)?;
    Ok(frames.into_iter().map(|(_, path)| path).collect())
}

/// The extensions of frames, for messages.
pub(super) fn extensions() -> String {
    EXTENSIONS.map(|extension| format!(".{extension}")).join(", ")
}

/// Sorts frames, each with its name without extension. An error if two have the same number.
pub(super) fn sort<T>(
    frames: &mut [(String, T)],
    path: impl Fn(&T) -> &PathBuf,
) -> Result<(), VideoError> {
    frames.sort_by(|a, b| order::natural(&a.0, &b.0).then_with(|| path(&a.1).cmp(path(&b.1))));
    let twice = |pair: &&[(String, T)]| {
        pair[0].0 == pair[1].0 || order::same_number(&pair[0].0, &pair[1].0)
    };
    match frames.windows(2).find(twice) {
        Some([first, second]) => {
            let (first, second) = (path(&first.1).clone(), path(&second.1).clone());
            Err(VideoError::SameFrame { first, second })
        }
        Some(_) | None => Ok(()),
    }
}

fn is_frame(path: &Path) -> bool {
    // A link to nothing is a frame that cannot be read: without it the frames after it would get other numbers.
    is_picture_name(path) && !path.is_dir()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl IndexedFrames for Files {
    fn length(&self) -> usize {
        self.paths.len()
    }

    fn frame(&self, index: usize) -> Result<Image, VideoError> {
        let Some(path) = self.paths.get(index) else {
            let name = self.folder.display().to_string();
            return Err(VideoError::NoFrame { name, frame: index, length: self.paths.len() });
        };
        let image = cutout_imaging::open(path, &self.limits)?;
        let (first, first_size) = *self.first.get_or_init(|| (index, image.size()));
        if image.size() == first_size {
            return Ok(image);
        }
        Err(VideoError::Sizes {
            first: self.paths[first].clone(),
            first_size,
            second: path.clone(),
            second_size: image.size(),
        })
    }
}

impl Iterator for Pictures {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.files.length() {
            return None;
        }
        let frame = self.files.frame(self.next);
        self.next = if frame.is_ok() { self.next + 1 } else { self.files.length() };
        Some(frame)
    }
}

impl FrameSource for Pictures {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        Some(self.files.length())
    }

    fn frame_rate(&self) -> Option<f64> {
        None
    }

    fn indexed(&self) -> Option<Arc<dyn IndexedFrames>> {
        Some(Arc::clone(&self.files) as Arc<dyn IndexedFrames>)
    }
}
