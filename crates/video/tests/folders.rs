//! Folders of images, raw frames, streams of PPM images.

use std::fs;
use std::io::{self, Cursor, Read};

use crate::support::{Folder, greys, opened, png};
use cutout_imaging::{DecodeError, DecodeLimits, Size};
use cutout_video::{FrameSource, OpenOptions, VideoError, VideoLimits, from_reader, open};

fn read(bytes: impl Into<Vec<u8>>, options: &OpenOptions) -> Box<dyn FrameSource> {
    from_reader(Cursor::new(bytes.into()), "the pipe", options).unwrap()
}

#[test]
fn numbered_files_are_ordered_by_value() {
    let folder = Folder::new("numbers");
    for (name, grey) in [("10.png", 3), ("9.png", 2), ("00001.png", 1), ("100.PNG", 4)] {
        folder.put(name, png(3, 2, grey));
    }
    folder.put("readme.txt", "not a frame");
    folder.put(".hidden.png", "not a frame");
    fs::create_dir(folder.0.join("5.png")).unwrap();
    let source = opened(&folder.0);
    assert_eq!((source.length(), source.frame_rate()), (Some(4), None));
    assert_eq!(source.name(), folder.0.display().to_string());
    assert!(matches!(greys(source), (found, None) if found == [1, 2, 3, 4]));
}

#[test]
fn other_names_are_in_natural_order() {
    let folder = Folder::new("natural");
    for (name, grey) in [("take 10.png", 3), ("take 9.png", 2), ("Take 2b.png", 1)] {
        folder.put(name, png(1, 1, grey));
    }
    assert!(matches!(greys(opened(&folder.0)), (found, None) if found == [1, 2, 3]));
}

#[test]
fn frames_can_be_read_by_index() {
    let folder = Folder::new("index");
    for index in 0..5 {
        folder.put(&format!("{index}.png"), png(2, 2, index));
    }
    let source = opened(&folder.0);
    let frames = source.indexed().unwrap();
    drop(source);
    assert_eq!(frames.length(), 5);
    for index in [4, 0, 3, 3, 1] {
        assert_eq!(usize::from(frames.frame(index).unwrap().as_rgb()[0]), index);
    }
    let error = frames.frame(5).unwrap_err();
    assert!(matches!(error, VideoError::NoFrame { frame: 5, length: 5, .. }), "{error}");
    // Sizes are compared with the frame that was read first, whatever its index.
    folder.put("2.png", png(2, 1, 0));
    let error = frames.frame(2).unwrap_err().to_string();
    assert!(error.contains("4.png has 2×2 pixels") && error.contains("2.png has 2×1"), "{error}");
}

#[test]
fn the_error_names_frames_of_different_sizes() {
    let folder = Folder::new("sizes");
    for (name, width) in [("0.png", 4), ("1.png", 4), ("2.png", 5), ("3.png", 4)] {
        folder.put(name, png(width, 4, 7));
    }
    let (found, error) = greys(opened(&folder.0));
    assert_eq!(found, [7, 7]);
    let Some(VideoError::Sizes { first, second, first_size, second_size }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((first, second), (folder.0.join("0.png"), folder.0.join("2.png")));
    assert_eq!((first_size, second_size), (Size::new(4, 4), Size::new(5, 4)));
}

#[test]
fn folders_without_frames_or_with_duplicates_are_errors() {
    let folder = Folder::new("empty");
    let refuse = || open(&folder.0, &OpenOptions::default()).err().unwrap();
    assert!(matches!(refuse(), VideoError::EmptyFolder { others: 0, .. }));
    assert!(refuse().to_string().contains("no pictures in this folder"), "{}", refuse());
    folder.put("notes.txt", "x");
    let error = refuse();
    assert!(matches!(error, VideoError::EmptyFolder { others: 1, .. }));
    assert!(error.to_string().contains(".jpeg, .png"), "{error}");
    folder.put("7.png", png(1, 1, 0));
    folder.put("007.jpg", "a mask? another frame?");
    assert!(matches!(refuse(), VideoError::SameFrame { .. }));
    fs::remove_file(folder.0.join("007.jpg")).unwrap();
    folder.put("7.bmp", "x");
    let error = refuse();
    let message = error.to_string();
    assert!(message.contains("7.bmp") && message.contains("7.png"), "{message}");
    let error = open(folder.0.join("none"), &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, VideoError::Read { .. }), "{error}");
}

#[test]
fn a_damaged_picture_ends_the_clip() {
    let folder = Folder::new("damaged");
    folder.put("0.png", png(2, 2, 1));
    folder.put("1.png", &png(2, 2, 1)[..30]);
    folder.put("2.png", png(2, 2, 1));
    let (found, error) = greys(opened(&folder.0));
    assert_eq!(found, [1]);
    let Some(VideoError::Picture(DecodeError::Damaged { origin, .. })) = error else {
        panic!("{error:?}")
    };
    assert!(origin.ends_with("1.png"));
}

#[test]
fn a_still_picture_is_a_clip_of_one_frame() {
    let folder = Folder::new("still");
    let path = folder.put("picture", png(2, 2, 9));
    let source = opened(&path);
    assert_eq!((source.length(), source.indexed().unwrap().length()), (Some(1), 1));
    assert!(matches!(greys(source), (found, None) if found == [9]));
    let source = read(png(2, 2, 9), &OpenOptions::default());
    assert_eq!(source.length(), Some(1));
    assert!(matches!(greys(source), (found, None) if found == [9]));
    let file_bytes = 20;
    let picture = DecodeLimits { file_bytes, ..DecodeLimits::default() };
    let limits = VideoLimits { picture, ..VideoLimits::default() };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    let error = from_reader(Cursor::new(png(2, 2, 9)), "the pipe", &options).err().unwrap();
    assert!(matches!(error, VideoError::Picture(DecodeError::TooManyBytes { .. })), "{error}");
}

#[test]
fn raw_frames_have_no_header() {
    let options = OpenOptions { raw: Some(Size::new(2, 1)), ..OpenOptions::default() };
    // The content is not used to detect a format.
    let mut bytes = b"GIF89a".to_vec();
    bytes.extend([5; 6]);
    let source = read(bytes.clone(), &options);
    assert_eq!((source.length(), source.name()), (None, "the pipe"));
    assert!(matches!(greys(source), (found, None) if found == [b'G', 5]));
    bytes.extend([6; 5]);
    let (found, error) = greys(read(bytes.clone(), &options));
    assert_eq!(found, [b'G', 5]);
    assert!(matches!(error, Some(VideoError::Truncated { frame: 2, expected: 6, found: 5, .. })));
    assert!(matches!(greys(read([], &options)).1, Some(VideoError::NoFrames { .. })));
    // A file has a length.
    let folder = Folder::new("raw");
    let source = open(folder.put("clip.rgb", &bytes), &options).unwrap();
    assert_eq!(source.length(), Some(2));
    assert_eq!(greys(source).0, [b'G', 5]);
    for size in [Size::new(0, 1), Size::square(100_000), Size::square(usize::MAX)] {
        let options = OpenOptions { raw: Some(size), ..OpenOptions::default() };
        assert!(from_reader(io::empty(), "x", &options).is_err(), "{size}");
    }
}

#[test]
fn frames_are_delivered_before_the_pipe_ends() {
    /// Delivers one frame, then fails.
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::other("unplugged"));
            }
            let length = self.0.min(buffer.len()).min(2);
            buffer[..length].fill(3);
            self.0 -= length;
            Ok(length)
        }
    }
    let options = OpenOptions { raw: Some(Size::new(2, 1)), ..OpenOptions::default() };
    let (found, error) = greys(from_reader(Broken(8), "camera", &options).unwrap());
    assert_eq!(found, [3]);
    assert_eq!(error.unwrap().to_string(), "camera: cannot read: unplugged");
}

#[test]
fn ppm_streams_are_read() {
    let options = OpenOptions::default();
    let mut bytes = b"P6\n2 1\n255\nabcdef".to_vec();
    bytes.extend(b"P6 # a comment\n# another\n 2\t1 255\nghijkl");
    let source = read(bytes.clone(), &options);
    assert_eq!(source.length(), None);
    assert!(matches!(greys(source), (found, None) if found == b"ag"));
    let folder = Folder::new("ppm");
    assert_eq!(greys(opened(folder.put("clip.ppm", &bytes))).0, b"ag");
    let rest = |rest: &[u8]| {
        let (found, error) = greys(read([&bytes[..17], rest].concat(), &options));
        assert_eq!(found, b"a");
        error.unwrap()
    };
    assert!(matches!(rest(b"P6\n2 1\n255\nxyz"), VideoError::Truncated { found: 3, .. }));
    assert!(matches!(rest(b"P6\n1 2\n255\nxyzxyz"), VideoError::FrameSize { frame: 1, .. }));
    assert!(matches!(rest(b"P6\n99999 99999\n255\n"), VideoError::TooManyPixels { .. }));
    assert!(matches!(rest(b"P6\n0 5\n255\n"), VideoError::Image { .. }));
    for wrong in [
        &b"P5\n2 1\n255\nxyzxyz"[..],
        b"P6\n2 1\n65535\nxyzxyzxyzxyz",
        b"P6\n2 1\n25",
        b"P6\n2 1 x 255\n",
        b"P6\n99999999999999999999 1\n255\n",
        b"\n",
        &[b' '; 5000],
        &[&b"P6"[..], &[b' '; 5000]].concat(),
        &[&b"P6#"[..], &[b'x'; 5000]].concat(),
    ] {
        let error = rest(wrong);
        assert!(matches!(error, VideoError::Stream { frame: 1, .. }), "{error}");
    }
}

#[test]
fn endless_headers_are_errors() {
    /// Delivers the same byte for ever; panics after a mebibyte.
    struct Endless(usize);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += buffer.len();
            assert!(self.0 < 1 << 20, "the parser reads the header without a limit");
            buffer.fill(b'1');
            Ok(buffer.len())
        }
    }
    let stream = Read::chain(Cursor::new(b"P6\n"), Endless(0));
    let (_, error) = greys(from_reader(stream, "x", &OpenOptions::default()).unwrap());
    assert!(error.unwrap().to_string().contains("its header does not end"));
}

#[test]
fn an_empty_file_is_an_error() {
    let folder = Folder::new("nothing");
    let error = open(folder.put("empty.mp4", ""), &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, VideoError::Picture(DecodeError::Empty { .. })), "{error}");
    let error = from_reader(io::empty(), "x", &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, VideoError::Picture(DecodeError::Empty { .. })), "{error}");
}
