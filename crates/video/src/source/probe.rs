//! Frame rate, length and version from `ffprobe` and `ffmpeg -version`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::process::capture;

/// Frame rate and length of a video; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) length: Option<usize>,
    pub(super) frame_rate: Option<f64>,
}

/// Runs `ffprobe`. Its failures leave the facts unknown; the decoder reports errors of the file.
pub(super) fn probe(ffprobe: &Path, url: &OsStr) -> Facts {
    let mut command = Command::new(ffprobe);
    command.args(["-v", "error", "-protocol_whitelist", "file,pipe,crypto,data"]);
    command.args(["-select_streams", "V:0", "-show_entries", "stream=avg_frame_rate,nb_frames"]);
    command.args(["-of", "default=noprint_wrappers=1", "-i"]).arg(url);
    capture(&mut command).map(|text| parse(&text)).unwrap_or_default()
}

/// Parses lines of `key=value`; unknown values are `N/A` or `0/0`.
fn parse(text: &str) -> Facts {
    let value = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.trim().split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let length = value("nb_frames").and_then(|value| value.parse().ok());
    let frame_rate = value("avg_frame_rate").and_then(parse_ratio);
    Facts { length: length.filter(|length| *length > 0), frame_rate }
}

fn parse_ratio(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/').unwrap_or((text, "1"));
    let rate = above.parse::<f64>().ok()? / below.parse::<f64>().ok()?;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The option that delivers every frame once instead of keeping a constant rate. Version 5.1 renamed it; builds without a
/// version number are treated as newer.
pub(super) fn every_frame_once(version: &str) -> [&'static str; 2] {
    let number = version.split_whitespace().nth(2).unwrap_or_default().trim_start_matches('n');
    let mut parts = number.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(0..=4)), _) | (Some(Ok(5)), Some(Ok(0))) => ["-vsync", "passthrough"],
        (Some(_) | None, _) => ["-fps_mode", "passthrough"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_parsed() {
        let facts = parse("avg_frame_rate=30000/1001\nnb_frames=200\n");
        assert_eq!(facts, Facts { length: Some(200), frame_rate: Some(30000.0 / 1001.0) });
        assert_eq!(parse("avg_frame_rate=0/0\nnb_frames=N/A\n"), Facts::default());
        assert_eq!(parse("avg_frame_rate=25\r\n").frame_rate, Some(25.0));
        for text in ["", "garbage", "avg_frame_rate=-5/1\nnb_frames=-3", "avg_frame_rate=1/0"] {
            assert_eq!(parse(text), Facts::default(), "{text:?}");
        }
    }

    #[test]
    fn the_option_depends_on_the_version() {
        for (old, version) in [
            (true, "ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright (c) 2000-2021"),
            (true, "ffmpeg version n3.4"),
            (true, "ffmpeg version 5.0.1"),
            (false, "ffmpeg version 5.1.6-0+deb12u1"),
            (false, "ffmpeg version 7.0.2-static https://johnvansickle.com/ffmpeg/"),
            (false, "ffmpeg version n8.0"),
            (false, "ffmpeg version N-109542-g1bf1d2a"),
            (false, "ffmpeg version git-2024-01-01"),
            (false, ""),
        ] {
            assert_eq!(every_frame_once(version)[0] == "-vsync", old, "{version}");
        }
    }
}
