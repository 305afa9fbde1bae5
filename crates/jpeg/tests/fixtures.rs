//! The pixels of every kind of file, byte for byte as Pillow shows them. `fixtures/make_jpeg.py` makes the files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use cutout_jpeg::{Damage, Decoder, JpegError, Picture};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jpeg")
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.jpg"))).unwrap()
}

fn decode(bytes: &[u8]) -> Result<Picture, JpegError> {
    Decoder::new(bytes)?.decode()
}

/// Names and expectations, except of rotated files: the decoder leaves the orientation to its caller.
fn expectations() -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    let Value::Object(mut all) = serde_json::from_str(&text).unwrap() else { panic!("no object") };
    let Some(Value::Object(files)) = all.remove("files") else { panic!("no files") };
    let turned = |name: &str| name.starts_with("orientation_") && name != "orientation_1";
    files.into_iter().filter(|(name, _)| !turned(name)).collect()
}

/// CRC-32 as in zlib.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    };
    !bytes.iter().fold(!0, step)
}

#[test]
fn every_kind_of_file_has_the_pixels_of_pillow() {
    let expectations = expectations();
    assert!(expectations.len() > 150, "{} files", expectations.len());
    let mut wrong = Vec::new();
    for (name, expected) in &expectations {
        let picture = decode(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = [picture.width as u64, picture.height as u64];
        assert_eq!(
            Some(size.to_vec()),
            expected["size"]
                .as_array()
                .map(|size| { size.iter().filter_map(Value::as_u64).collect() }),
            "{name}"
        );
        if u64::from(crc(&picture.rgb)) != expected["crc"].as_u64().unwrap() {
            wrong.push(name.as_str());
        }
        match expected["damage"].as_str().unwrap() {
            "intact" => assert_eq!(picture.damage, None, "{name}"),
            "cut" => assert!(picture.damage.is_some_and(|damage| damage.ends_early), "{name}"),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ: {wrong:?}", wrong.len(), expectations.len());
}

#[test]
fn an_end_marker_in_place_of_the_rest_gives_the_same_pixels() {
    for name in ["cut_30_420_61x39", "cut_95_progressive_420_61x39", "cut_60_restarts_3"] {
        let cut = fixture(name);
        let ended = [cut.as_slice(), &[0xff, 0xd9]].concat();
        let (cut, ended) = (decode(&cut).unwrap(), decode(&ended).unwrap());
        assert_eq!(cut.rgb, ended.rgb, "{name}");
        assert!(cut.damage.unwrap().ends_early, "{name}");
        assert!(matches!(ended.damage, Some(Damage { ends_early: false, faults: 1.. })), "{name}");
    }
}

#[test]
fn rows_before_a_cut_stay_as_they_are() {
    let whole = fixture("420_61x39");
    let complete = decode(&whole).unwrap();
    let start = whole.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 14;
    let mut known = 0;
    for length in start..whole.len() {
        let picture = decode(&whole[..length]).unwrap();
        let same = picture.rgb.iter().zip(&complete.rgb).take_while(|(a, b)| a == b).count();
        // Rows of 16 pixels; the last one above the missing part is interpolated with it.
        assert!(same >= known || same >= complete.rgb.len() / 2, "{length}: {same} after {known}");
        known = known.max(same / (61 * 3 * 16) * (61 * 3 * 16));
    }
    assert_eq!(known, complete.rgb.len() / (61 * 3 * 16) * (61 * 3 * 16));
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = fixture("420_17x33");
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    // Bytes of the frame header: precision at 4, width at 7, channels at 9, sampling factors at 11 and 14.
    for (changes, expected) in [
        (&[(1, 0xc3)][..], "lossless JPEG"),
        (&[(1, 0xc5)], "hierarchical JPEG (frame type 0xc5)"),
        (&[(4, 12)], "12 bits per sample; supported: 8"),
        (&[(7, 0), (8, 0)], "its width or height is 0"),
        (&[(9, 2)], "2 colour channels; supported: 1, 3 and 4"),
        (&[(11, 0x05)], "sampling factors 0x5; valid: 1 to 4"),
        (&[(14, 0x31)], "fractional sampling factors 2x2, 3x1, 1x1"),
        (&[(12, 3)], "quantisation table 3 is missing"),
    ] {
        let mut file = bytes.clone();
        for &(place, value) in changes {
            file[frame + place] = value;
        }
        assert_eq!(decode(&file).map(drop).unwrap_err().to_string(), expected);
    }
    assert!(decode(b"\xff\xd8\xff\xd9").is_err());
    assert!(decode(b"nothing").is_err());
    assert!(decode(&bytes[..frame + 6]).is_err());
}

#[test]
fn files_with_too_many_scans_are_refused() {
    let bytes = fixture("dc_only_1x1");
    let start = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    let (header, scan) = bytes[..bytes.len() - 2].split_at(start);
    let repeated = |count| [header, &scan.repeat(count), &[0xff, 0xd9]].concat();
    assert!(decode(&repeated(cutout_jpeg::MOST_SCANS)).is_ok());
    let error = decode(&repeated(cutout_jpeg::MOST_SCANS + 1)).map(drop).unwrap_err();
    assert_eq!(error, JpegError::Unsupported("more than 100 scans".to_owned()));
}
