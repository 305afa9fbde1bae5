//! The central directory of a zip archive, and the byte ranges of its entries.
//!
//! Written for this crate because it needs the byte range of stored entries in a mapped file without reading the entries,
//! rejection of overlapping entries, and size checks before any allocation. Checksums are not verified: that would read
//! every weight, and PyTorch can omit them.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;

use cutout_tensor::memory;

use crate::cursor::{Cursor, utf8};
use crate::error::Problem;
use crate::limits;

const LOCAL_HEADER: u32 = 0x0403_4b50;
const DIRECTORY_ENTRY: u32 = 0x0201_4b50;
const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const DIRECTORY_END_LENGTH: usize = 22;
const WIDE_DIRECTORY_END: u32 = 0x0606_4b50;
const WIDE_LOCATOR: u32 = 0x0706_4b50;
const WIDE_LOCATOR_LENGTH: usize = 20;
const LOCAL_HEADER_LENGTH: u64 = 30;
/// Largest compression ratio of deflate.
const LARGEST_RATIO: u64 = 1032;

/// Compression method of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Stored,
    Deflated,
}

/// One entry of the directory.
#[derive(Debug)]
pub(crate) struct ZipEntry {
    pub(crate) name: String,
    pub(crate) packing: Packing,
    /// Uncompressed size in bytes.
    pub(crate) size: u64,
    packed_size: u64,
    header: u64,
    /// Start of the next entry or of the directory: the data must end before it.
    bound: u64,
}

/// All entries of an archive.
#[derive(Debug)]
pub(crate) struct ZipDirectory {
    pub(crate) entries: Vec<ZipEntry>,
    by_name: HashMap<String, usize>,
}

impl ZipDirectory {
    /// Reads the directory at the end of the file.
    pub(crate) fn read(content: &[u8]) -> Result<ZipDirectory, Problem> {
        let DirectoryLocation { directory, entries: count } = find_directory(content)?;
        Problem::within("entries of the zip directory", limits::MAX_ZIP_ENTRIES, count)?;
        let mut cursor = Cursor::new(&content[..directory.end], directory.start);
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(read_entry(&mut cursor)?);
        }
        bound_entries(&mut entries, directory.start as u64)?;
        let mut by_name = HashMap::with_capacity(entries.len());
        for (position, entry) in entries.iter().enumerate() {
            if by_name.insert(entry.name.clone(), position).is_some() {
                return Err(Problem::Duplicate(entry.name.clone()));
            }
        }
        Ok(ZipDirectory { entries, by_name })
    }

    /// Index of the entry with this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Byte range of the compressed data of an entry, read from its local header.
    pub(crate) fn packed(&self, content: &[u8], index: usize) -> Result<Range<usize>, Problem> {
        let entry = &self.entries[index];
        // `bound_entries` has checked `header` and `bound` against the file.
        let mut cursor = Cursor::new(&content[..entry.bound as usize], entry.header as usize);
        let signature = cursor.u32("local zip header")?;
        if signature != LOCAL_HEADER {
            let what = format!("{}: local zip header", entry.name);
            return Err(Problem::invalid(what, "PK\\x03\\x04", format!("{signature:08x}")));
        }
        cursor.take(22, "local zip header")?;
        let name_length = cursor.u16("local zip header")?;
        let extra_length = cursor.u16("local zip header")?;
        let name = cursor.take(name_length.into(), "local zip header")?;
        if name != entry.name.as_bytes() {
            let found = String::from_utf8_lossy(name);
            return Err(Problem::invalid("name in the local zip header", &entry.name, found));
        }
        cursor.take(extra_length.into(), "local zip header")?;
        let start = cursor.position();
        cursor.take(entry.packed_size, &entry.name)?;
        Ok(start..cursor.position())
    }

    /// The decompressed bytes of a deflated entry; an error if there are more than `limit`.
    pub(crate) fn inflate(
        &self,
        content: &[u8],
        index: usize,
        limit: u64,
    ) -> Result<Vec<u8>, Problem> {
        let entry = &self.entries[index];
        let packed = self.deflated(content, index, limit)?;
        let mut unpacked = Vec::new();
        // Reading one byte beyond the declared size detects a wrong size without decompressing everything.
        let mut reader = flate2::read::DeflateDecoder::new(packed).take(entry.size + 1);
        reader
            .read_to_end(&mut unpacked)
            .map_err(|error| Problem::invalid(&entry.name, "deflated data", error))?;
        if unpacked.len() as u64 != entry.size {
            let what = format!("{}: unpacked size", entry.name);
            return Err(Problem::invalid(what, entry.size, unpacked.len()));
        }
        Ok(unpacked)
    }

    /// Ranges of the decompressed bytes of a deflated entry, sorted and disjoint. Only these are held in memory, and nothing
    /// after the last one is decompressed.
    pub(crate) fn inflate_ranges(
        &self,
        content: &[u8],
        index: usize,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Vec<u8>>, Problem> {
        let entry = &self.entries[index];
        let packed = self.deflated(content, index, limits::MAX_INFLATED_BYTES)?;
        let damaged = |error| Problem::invalid(&entry.name, "deflated data", error);
        let mut reader = flate2::read::DeflateDecoder::new(packed);
        let (mut parts, mut position) = (Vec::with_capacity(ranges.len()), 0);
        for range in ranges {
            skip(&mut reader, range.start - position).map_err(damaged)?;
            parts.push(take(&mut reader, range.end - range.start).map_err(damaged)?);
            position = range.end;
        }
        if position == entry.size && reader.read(&mut [0]).map_err(damaged)? > 0 {
            let what = format!("{}: unpacked size", entry.name);
            return Err(Problem::invalid(what, entry.size, "more"));
        }
        Ok(parts)
    }

    /// The compressed bytes of an entry; an error if it claims to hold more than `limit` or than deflate can pack.
    fn deflated<'c>(
        &self,
        content: &'c [u8],
        index: usize,
        limit: u64,
    ) -> Result<&'c [u8], Problem> {
        let entry = &self.entries[index];
        Problem::within("size of a deflated entry", limit, entry.size)?;
        let packed = &content[self.packed(content, index)?];
        let possible = (packed.len() as u64).saturating_mul(LARGEST_RATIO).saturating_add(64);
        if entry.size > possible {
            let what = format!("{}: unpacked size", entry.name);
            return Err(Problem::invalid(what, format!("at most {possible}"), entry.size));
        }
        Ok(packed)
    }
}

/// Reads and drops `length` bytes; an error if there are fewer.
fn skip(reader: &mut impl Read, length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
    if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads `length` bytes; an error if there are fewer.
fn take(reader: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let room = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = memory::with_capacity(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    reader.by_ref().take(length).read_to_end(&mut bytes)?;
    if bytes.len() == room { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Byte range of the central directory and its number of entries.
struct DirectoryLocation {
    directory: Range<usize>,
    entries: u64,
}

/// Finds the directory through the end record, which may be followed by a comment of up to 65535 bytes.
fn find_directory(content: &[u8]) -> Result<DirectoryLocation, Problem> {
    let first = content.len().saturating_sub(DIRECTORY_END_LENGTH + usize::from(u16::MAX));
    let last = content.len().checked_sub(DIRECTORY_END_LENGTH);
    let found = last.and_then(|last| {
        (first..=last).rev().find(|&at| {
            let comment = u16::from_le_bytes([content[at + 20], content[at + 21]]);
            content[at..].starts_with(DIRECTORY_END)
                && at + DIRECTORY_END_LENGTH + usize::from(comment) == content.len()
        })
    });
    let Some(end) = found else {
        let (wanted, found) = (DIRECTORY_END_LENGTH as u64, 0);
        return Err(Problem::Truncated { what: "the zip directory".into(), wanted, found });
    };
    let mut cursor = Cursor::new(content, end + 4);
    let disks = [cursor.u16("zip end record")?, cursor.u16("zip end record")?];
    let counts = [cursor.u16("zip end record")?, cursor.u16("zip end record")?];
    let size = cursor.u32("zip end record")?;
    let start = cursor.u32("zip end record")?;
    let wide = counts.contains(&u16::MAX) || size == u32::MAX || start == u32::MAX;
    if wide && let Some(at) = find_wide_end(content, end)? {
        return read_wide_end(content, at);
    }
    if disks != [0, 0] || counts[0] != counts[1] {
        return Err(Problem::Unsupported("a zip archive in several parts".into()));
    }
    locate(u64::from(start), u64::from(size), counts[0].into(), end)
}

/// Position of the zip64 end record, if a zip64 locator precedes the end record.
fn find_wide_end(content: &[u8], end: usize) -> Result<Option<usize>, Problem> {
    let Some(at) = end.checked_sub(WIDE_LOCATOR_LENGTH) else { return Ok(None) };
    let mut cursor = Cursor::new(&content[..end], at);
    if cursor.u32("zip64 locator")? != WIDE_LOCATOR {
        return Ok(None);
    }
    cursor.take(4, "zip64 locator")?;
    let position = cursor.u64("zip64 locator")?;
    match usize::try_from(position) {
        Ok(position) if position < at => Ok(Some(position)),
        Ok(_) | Err(_) => {
            let wanted = format!("a position before {at}");
            Err(Problem::invalid("zip64 end record", wanted, position))
        }
    }
}

fn read_wide_end(content: &[u8], at: usize) -> Result<DirectoryLocation, Problem> {
    const WHAT: &str = "zip64 end record";
    let mut cursor = Cursor::new(content, at);
    let signature = cursor.u32(WHAT)?;
    if signature != WIDE_DIRECTORY_END {
        return Err(Problem::invalid(WHAT, "PK\\x06\\x06", format!("{signature:08x}")));
    }
    cursor.take(12, WHAT)?;
    let disks = [cursor.u32(WHAT)?, cursor.u32(WHAT)?];
    let counts = [cursor.u64(WHAT)?, cursor.u64(WHAT)?];
    let size = cursor.u64(WHAT)?;
    let start = cursor.u64(WHAT)?;
    if disks != [0, 0] || counts[0] != counts[1] {
        return Err(Problem::Unsupported("a zip archive in several parts".into()));
    }
    locate(start, size, counts[0], at)
}

/// Checks that the directory ends before its end record.
fn locate(start: u64, size: u64, entries: u64, end: usize) -> Result<DirectoryLocation, Problem> {
    match start.checked_add(size) {
        Some(stop) if stop <= end as u64 => {
            Ok(DirectoryLocation { directory: start as usize..stop as usize, entries })
        }
        Some(_) | None => {
            let found = format!("{size} bytes at {start}");
            Err(Problem::invalid("zip directory", format!("a range before {end}"), found))
        }
    }
}

fn read_entry(cursor: &mut Cursor<'_>) -> Result<ZipEntry, Problem> {
    const WHAT: &str = "zip directory";
    let signature = cursor.u32(WHAT)?;
    if signature != DIRECTORY_ENTRY {
        return Err(Problem::invalid(WHAT, "PK\\x01\\x02", format!("{signature:08x}")));
    }
    cursor.take(4, WHAT)?;
    let flags = cursor.u16(WHAT)?;
    let method = cursor.u16(WHAT)?;
    cursor.take(8, WHAT)?;
    let mut packed_size = u64::from(cursor.u32(WHAT)?);
    let mut size = u64::from(cursor.u32(WHAT)?);
    let name_length = cursor.u16(WHAT)?;
    let extra_length = cursor.u16(WHAT)?;
    let comment_length = cursor.u16(WHAT)?;
    cursor.take(8, WHAT)?;
    let mut header = u64::from(cursor.u32(WHAT)?);
    Problem::within("name in the zip directory", limits::MAX_NAME_BYTES, name_length.into())?;
    let name = utf8(cursor.take(name_length.into(), WHAT)?, "name in the zip directory")?;
    let extra = cursor.take(extra_length.into(), WHAT)?;
    cursor.take(comment_length.into(), WHAT)?;
    widen(extra, [&mut size, &mut packed_size, &mut header])?;
    if flags & 1 != 0 {
        return Err(Problem::Unsupported(format!("{name}: an encrypted zip entry")));
    }
    let packing = match method {
        0 if size != packed_size => {
            return Err(Problem::invalid(format!("{name}: stored size"), size, packed_size));
        }
        0 => Packing::Stored,
        8 => Packing::Deflated,
        _ => return Err(Problem::Unsupported(format!("{name}: zip method {method}"))),
    };
    Ok(ZipEntry { name: name.to_owned(), packing, size, packed_size, header, bound: 0 })
}

/// Replaces fields equal to `u32::MAX` by their 64-bit values from the zip64 extra field, in this order.
fn widen(extra: &[u8], fields: [&mut u64; 3]) -> Result<(), Problem> {
    const WHAT: &str = "extra field of the zip directory";
    if fields.iter().all(|field| **field != u64::from(u32::MAX)) {
        return Ok(());
    }
    let mut cursor = Cursor::new(extra, 0);
    while cursor.left() > 0 {
        let kind = cursor.u16(WHAT)?;
        let length = cursor.u16(WHAT)?;
        let data = cursor.take(length.into(), WHAT)?;
        if kind != 1 {
            continue;
        }
        let mut wide = Cursor::new(data, 0);
        for field in fields {
            if *field == u64::from(u32::MAX) {
                *field = wide.u64(WHAT)?;
            }
        }
        return Ok(());
    }
    Ok(())
}

/// Sets the bound of each entry to the start of the next one. Returns an error if an entry reaches beyond its bound.
fn bound_entries(entries: &mut [ZipEntry], directory: u64) -> Result<(), Problem> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&index| entries[index].header);
    let mut next = (directory, "the zip directory".to_owned());
    for &index in order.iter().rev() {
        let entry = &mut entries[index];
        let least = (LOCAL_HEADER_LENGTH + entry.name.len() as u64).checked_add(entry.packed_size);
        let end = least.and_then(|least| entry.header.checked_add(least));
        if end.is_none_or(|end| end > next.0) {
            return Err(Problem::Overlap { first: entry.name.clone(), second: next.1 });
        }
        entry.bound = next.0;
        next = (entry.header, entry.name.clone());
    }
    Ok(())
}
