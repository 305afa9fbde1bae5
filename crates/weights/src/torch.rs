//! PyTorch files: a zip archive with one pickle that describes the tensors, and one entry per storage.
//!
//! A small interpreter ([`pickle`]) runs the pickle. It knows only the opcodes and names that tensors need, builds plain
//! values, and calls nothing. [`collect`] finds the state dict in the result, and [`archive`] checks every tensor against
//! its storage before it is listed.

pub(crate) mod archive;
mod collect;
mod names;
mod pickle;

use std::borrow::Cow;

use crate::checkpoint::Parsed;
use crate::error::Problem;
use crate::limits;
use crate::zip::{Packing, ZipDirectory};

/// Reads the pickle of an archive and lists the tensors of its state dict.
pub(crate) fn parse(content: &[u8]) -> Result<Parsed, Problem> {
    let directory = ZipDirectory::read(content)?;
    let (index, folder) = find_pickle(&directory)?;
    refuse_big_endian(content, &directory, folder)?;
    let size = directory.entries[index].size;
    Problem::within("size of the pickle", limits::MAX_PICKLE_BYTES, size)?;
    let folder = folder.to_owned();
    let pickle = unpacked(content, &directory, index, limits::MAX_PICKLE_BYTES)?;
    let values = pickle::run(&pickle)?;
    let tensors = collect::state_dict(&values)?;
    archive::build(directory, &folder, &values, &tensors)
}

/// The entry `data.pkl` in the archive's folder, and the folder with its slash.
fn find_pickle(directory: &ZipDirectory) -> Result<(usize, &str), Problem> {
    let mut found = directory.entries.iter().enumerate().filter_map(|(index, entry)| {
        let folder = entry.name.strip_suffix("data.pkl")?;
        let is_top = folder.is_empty() || folder.find('/') == Some(folder.len() - 1);
        is_top.then_some((index, folder))
    });
    match (found.next(), found.next()) {
        (Some(pickle), None) => Ok(pickle),
        (Some(_), Some(_)) => Err(Problem::Duplicate("data.pkl".into())),
        (None, _) => {
            let count = directory.entries.len();
            let found = format!("a zip archive of {count} other entries");
            Err(Problem::invalid("PyTorch file", "an entry data.pkl", found))
        }
    }
}

/// Rejects files whose entry `byteorder` says big-endian.
fn refuse_big_endian(
    content: &[u8],
    directory: &ZipDirectory,
    folder: &str,
) -> Result<(), Problem> {
    let Some(index) = directory.find(&format!("{folder}byteorder")) else { return Ok(()) };
    let order = unpacked(content, directory, index, 64)?;
    match order.trim_ascii() {
        b"little" => Ok(()),
        b"big" => Err(Problem::Unsupported("a file written on a big-endian machine".into())),
        other => {
            let found = String::from_utf8_lossy(&other[..other.len().min(64)]);
            Err(Problem::invalid("byteorder", "little", found))
        }
    }
}

/// The uncompressed bytes of an entry: borrowed from the file if it is stored, decompressed if it is deflated.
fn unpacked<'a>(
    content: &'a [u8],
    directory: &ZipDirectory,
    index: usize,
    limit: u64,
) -> Result<Cow<'a, [u8]>, Problem> {
    match directory.entries[index].packing {
        Packing::Stored => Ok(Cow::Borrowed(&content[directory.packed(content, index)?])),
        Packing::Deflated => Ok(Cow::Owned(directory.inflate(content, index, limit)?)),
    }
}
