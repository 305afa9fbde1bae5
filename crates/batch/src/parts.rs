//! Part files and their marks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::shard::Shard;

/// What is known of a finished part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Rows of the part.
    pub rows: usize,
    /// Pictures of the part.
    pub pictures: usize,
    /// Pictures that failed.
    pub errors: usize,
    /// SHA-256 of the part file.
    pub sha256: String,
    /// Digest of everything the part depends on: model, options, ids and sizes of its inputs.
    pub key: String,
}

/// Why a part cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The rows cannot be encoded.
    #[error("{}: {reason}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Name of part `number` of a shard.
pub fn part_name(shard: Shard, number: usize) -> String {
    format!("part-{:05}-of-{:05}-{number:06}.parquet", shard.index(), shard.count())
}

/// The mark of a part. Readers of folders pass over names that begin with an underscore.
pub fn mark_path(part: &Path) -> PathBuf {
    let stem = part.file_stem().unwrap_or_default().to_string_lossy();
    part.with_file_name(format!("_{stem}.done"))
}

/// What there is of a part.
pub(crate) enum State {
    /// Nothing, or a file without its mark.
    Missing,
    /// The part of this run, and its file is as its mark says.
    Finished(Mark),
    /// A part of another run.
    Other,
}

/// The state of the part of a run with this key.
pub(crate) fn state(part: &Path, key: &str) -> State {
    match read_mark(&mark_path(part)) {
        None => State::Missing,
        Some(mark) if mark.key != key => State::Other,
        Some(mark) => match fs::read(part) {
            Ok(bytes) if sha256(&bytes) == mark.sha256 => State::Finished(mark),
            Ok(_) | Err(_) => State::Missing,
        },
    }
}

fn read_mark(path: &Path) -> Option<Mark> {
    /// Most bytes of a mark.
    const MOST: u64 = 1 << 16;
    let is_short = fs::metadata(path).ok()?.len() <= MOST;
    let text = is_short.then(|| fs::read(path).ok())??;
    serde_json::from_slice(&text).ok()
}

/// A part file in the output folder that this run does not write: it has another shard count, or its number is beyond the last
/// part of this shard. Readers of the folder would count its rows too.
pub(crate) fn stray(folder: &Path, shard: Shard, parts: usize) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_stray(&name, shard, parts) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn is_stray(name: &str, shard: Shard, parts: usize) -> bool {
    let Some(rest) = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet"))
    else {
        return false;
    };
    let fields: Vec<&str> = rest.split('-').collect();
    let &[index, "of", count, number] = &fields[..] else { return false };
    if count.parse() != Ok(shard.count()) {
        return true;
    }
    index.parse() == Ok(shard.index()) && number.parse().is_ok_and(|number: usize| number >= parts)
}

/// Writes a part, then its mark. An old mark is removed first, because it describes the old file.
pub(crate) fn write(part: &Path, bytes: &[u8], mark: &Mark) -> Result<(), PartError> {
    let path = mark_path(part);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(PartError::Write { path, source });
        }
        Ok(()) | Err(_) => {}
    }
    replace(part, bytes)?;
    let text = serde_json::to_vec(mark);
    let text =
        text.map_err(|error| PartError::Encode { path: path.clone(), reason: error.to_string() })?;
    replace(&path, &text)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), PartError> {
    let fail = |source| PartError::Write { path: path.to_owned(), source };
    cutout_files::replace(path, fail, |file| io::Write::write_all(file, bytes).map_err(fail))
}

/// SHA-256 as text.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
