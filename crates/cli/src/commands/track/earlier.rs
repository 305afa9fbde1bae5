//! Results of earlier runs in the outputs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cutout_files::is_written_here;

use super::outputs::{Places, frame_number};
use crate::failure::Usage;

/// Returns an error if the result of a frame that was done is missing.
pub(super) fn check_results(places: &Places, done: &BTreeSet<usize>) -> Result<()> {
    if let Some(path) = places.line_files().find(|path| !path.is_file()) {
        return Err(is_missing(path));
    }
    for (folder, extension) in places.folders() {
        let found = frame_files(folder, extension);
        let found: BTreeSet<usize> = found.into_iter().map(|(frame, _)| frame).collect();
        if let Some(frame) = done.difference(&found).next() {
            return Err(is_missing(&folder.join(format!("{frame:05}.{extension}"))));
        }
    }
    Ok(())
}

fn is_missing(path: &Path) -> anyhow::Error {
    let path = path.display();
    Usage::error(format!(
        "{path}: is missing, though the run that broke off wrote it; leave out --resume to begin with the first frame"
    ))
}

/// Whether the outputs have the results of these frames, and of no others.
pub(super) fn are_complete(places: &Places, frames: &BTreeSet<usize>) -> bool {
    let has_frames = |(folder, extension)| {
        let found = frame_files(folder, extension);
        found.into_iter().map(|(frame, _)| frame).collect::<BTreeSet<_>>() == *frames
    };
    places.overlay_file().is_none_or(Path::is_file)
        && places.line_files().all(|path| lines_in(path).is_ok_and(|lines| lines == frames.len()))
        && places.folders().all(has_frames)
}

/// Removes the files of frames that this run has not done, if this program wrote them.
pub(super) fn remove_other_frames(places: &Places, done: &BTreeSet<usize>) -> Result<()> {
    for (folder, extension) in places.folders() {
        for (frame, path) in frame_files(folder, extension) {
            if !done.contains(&frame) && is_written_here(&path) {
                fs::remove_file(&path)
                    .with_context(|| format!("{}: cannot be removed", path.display()))?;
            }
        }
    }
    Ok(())
}

/// The files of frames in a folder. A folder that cannot be read has none.
fn frame_files(folder: &Path, extension: &str) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let frame = |entry: fs::DirEntry| {
        let frame = frame_number(entry.file_name().to_str()?, extension)?;
        Some((frame, entry.path()))
    };
    entries.filter_map(frame).collect()
}

fn lines_in(path: &Path) -> Result<usize> {
    let mut reader = BufReader::new(fs::File::open(path)?);
    let mut lines = 0;
    // Only complete lines count.
    while reader.skip_until(b'\n')? > 0 {
        lines += 1;
    }
    Ok(lines)
}
