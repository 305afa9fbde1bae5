//! Files are written completely or not at all, and can be read back.

use std::fs;
use std::path::PathBuf;

use cutout_imaging::{
    DecodeLimits, Image, Mask, MaskDepth, Size, WriteError, decode, encode_image, encode_labels,
    encode_mask, encode_rgba, write, write_npy, write_with,
};

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("cutout-imaging-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ignored = fs::remove_dir_all(&self.0);
    }
}

fn checkerboard(size: Size) -> Mask {
    let pixels = (0..size.width * size.height).map(|i| (i / size.width + i % size.width) % 2 == 1);
    Mask::from_pixels(size, pixels.collect()).unwrap()
}

#[test]
fn files_are_replaced_atomically() {
    let folder = Folder::new("replace");
    let path = folder.0.join("a.txt");
    write(&path, b"old").unwrap();
    write(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    // A failed write leaves the old file and no temporary file.
    let failed = write_with(&path, |file| {
        file.write_all(b"half")?;
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    });
    assert!(matches!(failed, Err(WriteError::Full(_))));
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(folder.names(), ["a.txt"]);
}

#[test]
fn paths_that_cannot_be_written_have_their_own_errors() {
    let folder = Folder::new("places");
    let missing = folder.0.join("missing").join("a.png");
    let error = write(&missing, b"x").unwrap_err();
    assert!(matches!(error, WriteError::NoFolder(_)), "{error}");
    assert!(error.to_string().contains("missing"));
    assert!(matches!(write(&folder.0, b"x"), Err(WriteError::IsFolder(_))));
    let file = folder.0.join("file");
    write(&file, b"x").unwrap();
    assert!(matches!(write(file.join("a.png"), b"x"), Err(WriteError::NoFolder(_))));
    assert_eq!(folder.names(), ["file"]);
}

#[cfg(target_os = "linux")]
#[test]
fn full_and_read_only_disks_have_their_own_errors() {
    let error = write("/dev/full", b"x").unwrap_err();
    assert!(matches!(error, WriteError::Full(_)), "{error}");
    write("/dev/null", b"x").unwrap();
    // Not even root can create files there.
    let error = write("/proc/self/fdinfo/a.png", b"x").unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly(_) | WriteError::NoFolder(_)), "{error}");
}

#[test]
fn png_files_read_back() {
    let size = Size::new(13, 7);
    let read = |bytes: &[u8]| decode(bytes, "png", &DecodeLimits::default()).unwrap();
    let mask = checkerboard(size);
    for depth in [MaskDepth::Byte, MaskDepth::Bit] {
        let image = read(&encode_mask(&mask, depth).unwrap());
        let found: Vec<bool> = image.as_rgb().chunks_exact(3).map(|rgb| rgb == [255; 3]).collect();
        assert_eq!(found, mask.pixels(), "{depth:?}");
    }
    let photo = Image::from_rgb(size, (0..13 * 7 * 3).map(|i| i as u8).collect()).unwrap();
    assert_eq!(read(&encode_image(&photo).unwrap()), photo);
    let labels: Vec<u8> = (0..13 * 7).map(|i| (i % 3) as u8).collect();
    let image = read(&encode_labels(size, &labels).unwrap());
    assert_eq!(image.as_rgb()[..9], [0, 0, 0, 128, 0, 0, 0, 128, 0]);
    let rgba = [9, 8, 7, 255].repeat(13 * 7);
    assert_eq!(read(&encode_rgba(size, &rgba).unwrap()).pixel(5, 5), Some([9, 8, 7]));
    assert!(encode_rgba(size, &rgba[1..]).is_err());
    assert!(encode_labels(size, &labels[1..]).is_err());
}

#[test]
fn npy_files_hold_every_mask() {
    let folder = Folder::new("npy");
    let path = folder.0.join("masks.npy");
    let size = Size::new(3, 2);
    let mask = checkerboard(size).to_rle().unwrap();
    write_npy(&path, size, &[mask.clone(), mask.clone()]).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    assert_eq!(bytes.len() % 64, 12);
    assert_eq!(bytes[bytes.len() - 12..], [0, 1, 0, 1, 0, 1].repeat(2));
    assert!(String::from_utf8_lossy(&bytes[..128]).contains("'shape': (2, 2, 3)"));
    assert!(write_npy(&path, Size::new(4, 2), &[mask]).is_err());
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
