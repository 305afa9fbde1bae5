//! Helpers shared by the tests of this crate.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(unreachable_pub, reason = "it is a module of every test file")]

use std::fs;
use std::path::{Path, PathBuf};

use cutout_imaging::{Image, Mask, Rle, Size, encode_image};
use cutout_video::{FrameSource, ObjectMask, OpenOptions, Tools, VideoError, open};

/// A temporary folder, removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let name = format!("cutout-video-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file and returns its path.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn names(&self) -> Vec<String> {
        names_in(&self.0)
    }
}

/// Names in a folder, sorted.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ignored = fs::remove_dir_all(&self.0);
    }
}

/// A PNG of one colour.
pub fn png(width: usize, height: usize, grey: u8) -> Vec<u8> {
    encode_image(&grey_image(width, height, grey)).unwrap()
}

pub fn grey_image(width: usize, height: usize, grey: u8) -> Image {
    Image::filled(Size::new(width, height), [grey; 3]).unwrap()
}

/// Opens a clip; panics on an error.
pub fn opened(path: impl AsRef<Path>) -> Box<dyn FrameSource> {
    open(path, &OpenOptions::default()).unwrap()
}

/// The first value of each frame, and the error that ended the clip.
pub fn greys(
    source: impl Iterator<Item = Result<Image, VideoError>>,
) -> (Vec<u8>, Option<VideoError>) {
    let mut greys = Vec::new();
    let mut source = source.fuse();
    for frame in source.by_ref() {
        match frame {
            Ok(image) => greys.push(image.as_rgb()[0]),
            Err(error) => {
                assert!(source.next().is_none(), "frames after an error");
                return (greys, Some(error));
            }
        }
    }
    (greys, None)
}

/// The stand-ins for `ffmpeg` and `ffprobe`.
pub fn fake_tools() -> Tools {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools");
    Tools { ffmpeg: Some(tools.join("ffmpeg")), ffprobe: Some(tools.join("ffprobe")) }
}

/// An object that covers the columns `from..to`.
pub fn columns(id: u32, size: Size, from: usize, to: usize) -> ObjectMask {
    let pixels = (0..size.width * size.height).map(|i| (from..to).contains(&(i % size.width)));
    let mask: Rle = Mask::from_pixels(size, pixels.collect()).unwrap().to_rle().unwrap();
    ObjectMask { id, mask, score: 0.5, found: None }
}
