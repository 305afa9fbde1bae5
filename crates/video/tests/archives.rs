//! Zip archives of pictures as clips.

use std::io::Cursor;

use cutout_imaging::DecodeLimits;
use cutout_video::{
    ArchiveWriter, FrameSource, OpenOptions, VideoError, VideoLimits, from_reader, open,
};

use crate::support::{Folder, greys, png};

fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Vec::new());
    for (name, bytes) in files {
        writer.add(name, bytes).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: Vec<u8>) -> Result<Box<dyn FrameSource>, VideoError> {
    from_reader(Cursor::new(bytes), "a.zip", &OpenOptions::default())
}

/// An archive with one deflated entry, which the writer does not make.
fn deflated(name: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    let packed = encoder.finish().unwrap();
    let mut file = zipped(&[(name, &packed)]);
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    let directory = 30 + name.len() + packed.len();
    for (at, shift) in [(0, 0), (directory, 2)] {
        file[at + 8 + shift] = 8;
        file[at + 14 + shift..at + 18 + shift].copy_from_slice(&checksum.sum().to_le_bytes());
        let size = (bytes.len() as u32).to_le_bytes();
        file[at + 22 + shift..at + 26 + shift].copy_from_slice(&size);
    }
    file
}

#[test]
fn pictures_are_read_in_natural_order_and_by_number() {
    let (one, two, ten) = (png(4, 3, 1), png(4, 3, 2), png(4, 3, 10));
    let file = zipped(&[
        ("clip/10.png", &ten),
        ("clip/2.png", &two),
        ("__MACOSX/clip/2.png", b"hidden"),
        ("clip/.3.png", b"hidden"),
        ("clip/notes.txt", b"no picture"),
        ("clip/001.png", &one),
    ]);
    let folder = Folder::new("zip");
    let source = open(folder.put("clip.zip", &file), &OpenOptions::default()).unwrap();
    assert_eq!(source.length(), Some(3));
    let indexed = source.indexed().unwrap();
    assert_eq!(indexed.frame(2).unwrap().as_rgb()[0], 10);
    assert!(matches!(indexed.frame(3), Err(VideoError::NoFrame { frame: 3, length: 3, .. })));
    assert!(matches!(greys(source), (found, None) if found == [1, 2, 10]));
    assert!(matches!(greys(read(file).unwrap()), (found, None) if found == [1, 2, 10]));
    assert!(
        matches!(greys(read(deflated("7.png", &ten)).unwrap()), (found, None) if found == [10])
    );
}

#[test]
fn damaged_archives_say_what_is_wrong() {
    let picture = png(4, 3, 1);
    let file = zipped(&[("1.png", &picture)]);
    let error = |bytes: Vec<u8>| match read(bytes) {
        Err(error) => error.to_string(),
        Ok(source) => greys(source).1.unwrap().to_string(),
    };
    assert!(error(zipped(&[])).contains("reading this file requires ffmpeg"), "no entry at all");
    assert!(error(zipped(&[("a.txt", b"x")])).contains("none of its 1 entries"));
    assert!(error(file[..file.len() - 8].to_vec()).contains("no directory"));
    let mut other = file.clone();
    other[40] ^= 1;
    assert!(error(other).contains("checksum"));
    let mut other = file.clone();
    let directory = 30 + 5 + picture.len();
    other[directory + 8] |= 1;
    assert!(error(other).contains("encrypted"));
    let mut other = file.clone();
    other[directory + 10] = 12;
    assert!(error(other).contains("compression 12"));
    let mut other = file.clone();
    other[directory + 42] = 3;
    assert!(error(other).contains("points at something else"));
    let mut other = file;
    other[directory] = b'X';
    assert!(error(other).contains("directory is damaged"));
    let same = zipped(&[("1.png", &picture), ("01.png", &picture)]);
    assert!(error(same).contains("same frame number"));
    let sizes = zipped(&[("1.png", &picture), ("2.png", &png(3, 3, 1))]);
    assert!(error(sizes).contains("frame 1 has 3×3"));
}

#[test]
fn limits_are_kept_before_anything_is_unpacked() {
    let picture = png(4, 3, 1);
    let two = zipped(&[("1.png", &picture), ("2.png", &picture)]);
    let limits = VideoLimits { animation_frames: 1, ..VideoLimits::default() };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    let found = from_reader(Cursor::new(two), "a.zip", &options);
    assert!(matches!(found.err(), Some(VideoError::TooManyFrames { limit: 1, .. })));
    // A small entry that unpacks to much more than it says, and one that says so.
    let bomb = deflated("1.png", &vec![0; 1 << 20]);
    let picture = DecodeLimits { file_bytes: 4000, ..DecodeLimits::default() };
    let limits = VideoLimits { picture, ..VideoLimits::default() };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    let source = from_reader(Cursor::new(bomb.clone()), "a.zip", &options).unwrap();
    assert!(greys(source).1.unwrap().to_string().contains("at most 4000 are read"));
    let mut lies = bomb;
    let directory = lies.len() - 22 - 46 - 5;
    lies[directory + 24..directory + 28].copy_from_slice(&100_u32.to_le_bytes());
    let source = from_reader(Cursor::new(lies), "a.zip", &options).unwrap();
    assert!(greys(source).1.unwrap().to_string().contains("checksum"));
}
