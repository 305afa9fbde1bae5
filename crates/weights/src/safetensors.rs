//! Safetensors: an eight-byte length, a JSON header, then the data of the tensors.
//!
//! This parser replaces the one of the `safetensors` crate for two reasons. That crate rejects a file with an unknown
//! element type; here the tensor is listed, and only loading it is an error. And duplicate names, rank and counts are
//! checked while the JSON is parsed, before memory is allocated for them.

mod header;
pub(crate) mod write;

use std::ops::Range;

use cutout_tensor::{DType, Shape};

use crate::checkpoint::{Entry, Parsed, Source, TensorInfo, plain};
use crate::cursor::Cursor;
use crate::error::Problem;
use crate::limits;
use crate::stored::StoredType;

use header::{Header, HeaderTensor};

/// Element types by the name the header gives them.
const TYPES: &[(&str, DType)] = &[
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("I8", DType::I8),
    ("U8", DType::U8),
    ("I32", DType::I32),
    ("I64", DType::I64),
    ("BOOL", DType::Bool),
];

/// Types that are listed but cannot be loaded: name in the header, name shown, bytes per element.
const LISTED: &[(&str, &str, usize)] = &[
    ("I16", "i16", 2),
    ("U16", "u16", 2),
    ("U32", "u32", 4),
    ("U64", "u64", 8),
    ("C64", "complex64", 8),
    ("F8_E4M3", "f8_e4m3", 1),
    ("F8_E5M2", "f8_e5m2", 1),
    ("F8_E8M0", "f8_e8m0", 1),
];

fn stored_type(name: &str) -> StoredType {
    if let Some(&(_, dtype)) = TYPES.iter().find(|(known, _)| *known == name) {
        return plain(dtype);
    }
    if name == "F64" {
        return StoredType::F64;
    }
    match LISTED.iter().find(|(known, ..)| *known == name) {
        Some(&(_, name, bytes)) => StoredType::other(name, bytes),
        None => StoredType::other(name, 0),
    }
}

/// Reads the header of a file and checks that the tensors fill the rest of it exactly.
pub(crate) fn parse(content: &[u8]) -> Result<Parsed, Problem> {
    let mut cursor = Cursor::new(content, 0);
    let length = cursor.u64("length of the header")?;
    Problem::within("length of the header", limits::MAX_HEADER_BYTES, length)?;
    let header = Header::read(cursor.take(length, "header")?)?;
    let data = cursor.position()..content.len();
    let needed = header.tensors.iter().map(|tensor| tensor.offsets[1]).max().unwrap_or(0);
    if needed > data.len() as u64 {
        let (what, found) = ("the data of all tensors".to_owned(), data.len() as u64);
        return Err(Problem::Truncated { what, wanted: needed, found });
    }
    let entries = header
        .tensors
        .into_iter()
        .map(|tensor| entry(tensor, &data))
        .collect::<Result<Vec<_>, _>>()?;
    refuse_gaps(&entries, &data)?;
    Ok(Parsed { entries, metadata: header.metadata, archive: None })
}

/// Converts a tensor of the header, whose end was checked against the data, to an entry.
fn entry(tensor: HeaderTensor, data: &Range<usize>) -> Result<Entry, Problem> {
    let HeaderTensor { name, dtype, shape, offsets: [start, end] } = tensor;
    if start > end {
        let wanted = "a start before the end";
        return Err(Problem::invalid(name + ": data_offsets", wanted, format!("{start}..{end}")));
    }
    let axes: Result<Vec<usize>, _> = shape.iter().map(|&axis| usize::try_from(axis)).collect();
    let axes =
        axes.map_err(|_| Problem::invalid(format!("{name}: shape"), "axes", "a huge number"))?;
    let mut info = TensorInfo::new(&name, stored_type(&dtype), Shape::from(axes))?;
    // For a type of unknown size, the size comes from the offsets.
    if matches!(&info.stored, StoredType::Other { block: (_, 0), .. }) {
        info.bytes = end - start;
    }
    if info.bytes != end - start {
        let wanted = format!("{} bytes for {}{}", info.bytes, info.stored, info.shape);
        return Err(Problem::invalid(name + ": data_offsets", wanted, end - start));
    }
    // The largest end was checked against the length of the data, so both fit.
    let range = data.start + start as usize..data.start + end as usize;
    Ok(Entry { info, source: Source::Range(range) })
}

/// Returns an error for gaps and overlaps between tensors; the format allows neither.
fn refuse_gaps(entries: &[Entry], data: &Range<usize>) -> Result<(), Problem> {
    let mut ranges: Vec<(&Range<usize>, &str)> = Vec::with_capacity(entries.len());
    for entry in entries {
        if let Source::Range(range) = &entry.source {
            ranges.push((range, &entry.info.name));
        }
    }
    ranges.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = data.start;
    let mut previous = "the header";
    for (range, name) in ranges {
        if range.start < end {
            return Err(Problem::Overlap { first: previous.into(), second: name.into() });
        }
        if range.start > end {
            let (wanted, found) = (end - data.start, range.start - data.start);
            return Err(Problem::invalid(format!("start of {name}"), wanted, found));
        }
        (end, previous) = (range.end, name);
    }
    if end != data.end {
        let (wanted, found) = (end - data.start, data.len());
        return Err(Problem::invalid("length of the data", wanted, found));
    }
    Ok(())
}
