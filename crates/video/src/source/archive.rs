//! A zip archive of images as a clip.

use std::io::{self, Read, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cutout_imaging::{Image, Size, decode, is_picture_name};
use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::animation::Input;
use super::{VideoLimits, pictures};
use crate::{FrameSource, IndexedFrames, VideoError};

const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const LOCAL_HEADER_LENGTH: usize = 30;
const DIRECTORY_ENTRY_LENGTH: usize = 46;
const DIRECTORY_END_LENGTH: usize = 22;
/// Most bytes of the directory. Archives above 4 GB and 65,535 entries (zip64) are not read.
const DIRECTORY_BYTES: u64 = 32 << 20;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const IS_ENCRYPTED: u16 = 1;

type Reason = String;

/// Images of an archive in the order of their names, decoded one at a time.
pub(super) struct Archive {
    content: Arc<Content>,
    next: usize,
}

/// The entries of an archive that are frames, and the size of the first decoded one, which all others must have.
struct Content {
    input: Mutex<Box<dyn Input>>,
    entries: Vec<Entry>,
    name: String,
    limits: VideoLimits,
    first: OnceLock<Size>,
}

struct Entry {
    path: PathBuf,
    method: u16,
    checksum: u32,
    packed: u64,
    size: u64,
    header: u64,
}

impl Archive {
    /// Reads the directory of an archive.
    pub(super) fn open(
        mut input: Box<dyn Input>,
        name: &str,
        limits: VideoLimits,
    ) -> Result<Self, VideoError> {
        let failed = |reason| VideoError::Archive { name: name.into(), reason };
        let entries = read_directory(&mut *input).map_err(failed)?;
        let others = entries.len();
        let mut frames: Vec<(String, Entry)> = entries
            .into_iter()
            .filter(|entry| is_frame(&entry.path))
            .map(|entry| (entry.path.with_extension("").display().to_string(), entry))
            .collect();
        if frames.is_empty() {
            let known = pictures::extensions();
            return Err(failed(format!("none of its {others} entries ends in {known}")));
        }
        if frames.len() > limits.animation_frames {
            let limit = limits.animation_frames;
            return Err(VideoError::TooManyFrames { name: name.into(), limit });
        }
        pictures::sort(&mut frames, |entry| &entry.path)?;
        let entries = frames.into_iter().map(|(_, entry)| entry).collect();
        let (input, first, name) = (Mutex::new(input), OnceLock::new(), name.to_owned());
        Ok(Archive { content: Arc::new(Content { input, entries, name, limits, first }), next: 0 })
    }
}

/// Whether an entry is a frame. Archives of macOS hold a second, hidden entry for each file.
fn is_frame(path: &Path) -> bool {
    !path.starts_with("__MACOSX") && is_picture_name(path)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads `length` bytes at a position; an error if there are fewer.
fn read_at(input: &mut dyn Input, at: u64, length: u64) -> io::Result<Vec<u8>> {
    input.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    input.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads the directory, which the last bytes of the file point at.
fn read_directory(input: &mut dyn Input) -> Result<Vec<Entry>, Reason> {
    let text = |error: io::Error| error.to_string();
    let length = input.seek(SeekFrom::End(0)).map_err(text)?;
    // A comment of up to 65,535 bytes may follow the end record.
    let tail = length.min((DIRECTORY_END_LENGTH + usize::from(u16::MAX)) as u64);
    let end = read_at(input, length - tail, tail).map_err(text)?;
    let last = end.len().checked_sub(DIRECTORY_END_LENGTH).ok_or("the file is too short")?;
    let at = (0..=last)
        .rev()
        .find(|at| end[*at..].starts_with(DIRECTORY_END))
        .ok_or("it has no directory, it may be incomplete")?;
    let end = &end[at..];
    let (size, start) = (u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
    if u16_at(end, 4) != 0 || start == u64::from(u32::MAX) || u16_at(end, 10) == u16::MAX {
        return Err("archives in parts and of more than 4 GB or 65,534 files are not read".into());
    }
    if size > DIRECTORY_BYTES {
        return Err(format!("a directory of {size} bytes; at most {DIRECTORY_BYTES} are read"));
    }
    let directory = read_at(input, start, size).map_err(text)?;
    let mut entries = Vec::new();
    let mut rest = &directory[..];
    for _ in 0..u16_at(end, 10) {
        entries.push(read_entry(&mut rest).ok_or("its directory is damaged")?);
    }
    Ok(entries)
}

/// Takes an entry of the directory from the front of `rest`; `None` if there is none.
fn read_entry(rest: &mut &[u8]) -> Option<Entry> {
    let bytes = *rest;
    if !bytes.starts_with(DIRECTORY_ENTRY) || bytes.len() < DIRECTORY_ENTRY_LENGTH {
        return None;
    }
    let name_length = usize::from(u16_at(bytes, 28));
    let more = usize::from(u16_at(bytes, 30)) + usize::from(u16_at(bytes, 32));
    let name = bytes.get(DIRECTORY_ENTRY_LENGTH..DIRECTORY_ENTRY_LENGTH + name_length)?;
    *rest = bytes.get(DIRECTORY_ENTRY_LENGTH + name_length + more..)?;
    let is_encrypted = u16_at(bytes, 8) & IS_ENCRYPTED != 0;
    Some(Entry {
        path: PathBuf::from(String::from_utf8_lossy(name).into_owned()),
        // No method has this number: an error when the entry is read.
        method: if is_encrypted { u16::MAX } else { u16_at(bytes, 10) },
        checksum: u32_at(bytes, 16),
        packed: u32_at(bytes, 20).into(),
        size: u32_at(bytes, 24).into(),
        header: u32_at(bytes, 42).into(),
    })
}

impl Content {
    /// The bytes of an entry.
    fn read(&self, entry: &Entry) -> Result<Vec<u8>, Reason> {
        let limit = self.limits.picture.file_bytes;
        if entry.size > limit || entry.packed > limit {
            return Err(format!("{} bytes; at most {limit} are read", entry.size));
        }
        let text = |error: io::Error| error.to_string();
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let header =
            read_at(&mut **input, entry.header, LOCAL_HEADER_LENGTH as u64).map_err(text)?;
        if !header.starts_with(LOCAL_HEADER) {
            return Err("the directory points at something else".into());
        }
        let lengths = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let start = entry.header + LOCAL_HEADER_LENGTH as u64 + lengths;
        let packed = read_at(&mut **input, start, entry.packed).map_err(text)?;
        drop(input);
        let bytes = match entry.method {
            STORED => packed,
            DEFLATED => {
                let mut bytes = Vec::new();
                let unpacked = DeflateDecoder::new(&packed[..]);
                unpacked
                    .take(entry.size.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(text)?;
                bytes
            }
            u16::MAX => return Err("it is encrypted".into()),
            other => return Err(format!("compression {other}; stored and deflated are read")),
        };
        let mut checksum = Crc::new();
        checksum.update(&bytes);
        if bytes.len() as u64 != entry.size || checksum.sum() != entry.checksum {
            return Err("its size or checksum is wrong".into());
        }
        Ok(bytes)
    }
}

impl IndexedFrames for Content {
    fn length(&self) -> usize {
        self.entries.len()
    }

    fn frame(&self, index: usize) -> Result<Image, VideoError> {
        let name = || self.name.clone();
        let Some(entry) = self.entries.get(index) else {
            let length = self.entries.len();
            return Err(VideoError::NoFrame { name: name(), frame: index, length });
        };
        let inside = format!("{}: {}", self.name, entry.path.display());
        let failed = |reason| VideoError::Archive { name: inside.clone(), reason };
        let bytes = self.read(entry).map_err(failed)?;
        let image = decode(&bytes, &inside, &self.limits.picture)?;
        let expected = *self.first.get_or_init(|| image.size());
        if image.size() == expected {
            return Ok(image);
        }
        Err(VideoError::FrameSize { name: name(), frame: index, expected, found: image.size() })
    }
}

impl Iterator for Archive {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.content.length() {
            return None;
        }
        let frame = self.content.frame(self.next);
        self.next = if frame.is_ok() { self.next + 1 } else { self.content.length() };
        Some(frame)
    }
}

impl FrameSource for Archive {
    fn name(&self) -> &str {
        &self.content.name
    }

    fn length(&self) -> Option<usize> {
        Some(self.content.length())
    }

    fn frame_rate(&self) -> Option<f64> {
        None
    }

    fn indexed(&self) -> Option<Arc<dyn IndexedFrames>> {
        Some(Arc::clone(&self.content) as Arc<dyn IndexedFrames>)
    }
}
