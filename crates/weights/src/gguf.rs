//! GGUF, versions 2 and 3: key-value pairs, tensor descriptions, then the aligned data of the tensors.

pub(crate) mod blocks;
pub(crate) mod write;

use cutout_tensor::{DType, Shape};

use crate::checkpoint::{Entry, Parsed, Source, TensorInfo, plain, refuse_overlaps};
use crate::cursor::{Cursor, utf8};
use crate::error::Problem;
use crate::limits;
use crate::metadata::{Metadata, MetadataValue};
use crate::stored::StoredType;

use blocks::BlockType;

/// Alignment of tensor data, in bytes, if the file has no `general.alignment`.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The largest alignment accepted.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// Most axes of a tensor in this format.
const MAX_AXES: u64 = 4;

/// Element types loaded without conversion, by their number in the file.
const PLAIN: &[(u32, DType)] = &[
    (0, DType::F32),
    (1, DType::F16),
    (24, DType::I8),
    (26, DType::I32),
    (27, DType::I64),
    (30, DType::BF16),
];

/// Quantised types that are loaded as `f32`.
const BLOCKS: &[(u32, BlockType)] =
    &[(2, BlockType::Q4_0), (8, BlockType::Q8_0), (12, BlockType::Q4K), (14, BlockType::Q6K)];

/// Types that are listed but cannot be loaded: number, name, elements per block, bytes per block.
const LISTED: &[(u32, &str, usize, usize)] = &[
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (13, "q5_k", 256, 176),
    (15, "q8_k", 256, 292),
    (25, "i16", 1, 2),
];

fn stored_type(number: u32) -> StoredType {
    if let Some(&(_, dtype)) = PLAIN.iter().find(|(known, _)| *known == number) {
        return plain(dtype);
    }
    if let Some(&(_, block)) = BLOCKS.iter().find(|(known, _)| *known == number) {
        return StoredType::Block(block);
    }
    if number == 28 {
        return StoredType::F64;
    }
    match LISTED.iter().find(|(known, ..)| *known == number) {
        Some(&(_, name, length, bytes)) => {
            StoredType::Other { name: name.into(), block: (length, bytes) }
        }
        None => StoredType::other(format!("ggml type {number}"), 0),
    }
}

/// Reads the header of a file and checks that every tensor lies inside it.
pub(crate) fn parse(content: &[u8]) -> Result<Parsed, Problem> {
    let window = content.len().min(limits::MAX_HEADER_BYTES as usize);
    let mut cursor = Cursor::new(&content[..window], 4);
    let parsed = parse_header(&mut cursor, content.len());
    // The header was cut by the limit, not by the end of the file.
    match parsed {
        Err(Problem::Truncated { .. }) if window < content.len() => Err(Problem::Limit {
            what: "length of the header",
            limit: limits::MAX_HEADER_BYTES,
            found: content.len() as u64,
        }),
        parsed => parsed,
    }
}

fn parse_header(cursor: &mut Cursor<'_>, length: usize) -> Result<Parsed, Problem> {
    let version = cursor.u32("version")?;
    if !matches!(version, 2 | 3) {
        if matches!(version.swap_bytes(), 1..=3) {
            return Err(Problem::Unsupported("a big-endian GGUF file".into()));
        }
        return Err(Problem::invalid("version", "2 or 3", version));
    }
    let tensors = cursor.u64("number of tensors")?;
    Problem::within("number of tensors", limits::MAX_TENSORS, tensors)?;
    let pairs = cursor.u64("number of metadata entries")?;
    Problem::within("number of metadata entries", limits::MAX_METADATA_VALUES, pairs)?;
    let metadata = read_metadata(cursor, pairs)?;
    let alignment = alignment(&metadata)?;
    let described =
        (0..tensors).map(|_| read_description(cursor)).collect::<Result<Vec<_>, _>>()?;
    // The header is at most `limits::MAX_HEADER_BYTES` long, so this cannot overflow.
    let start = (cursor.position() as u64).next_multiple_of(alignment);
    let mut entries = Vec::with_capacity(described.len());
    for (info, offset) in described {
        entries.push(locate(info, offset, alignment, start..length as u64)?);
    }
    let ranges = entries.iter().filter_map(|entry| match &entry.source {
        Source::Range(range) => Some((range.clone(), entry.info.name.as_str())),
        Source::Storage(_) => None,
    });
    refuse_overlaps(ranges.collect())?;
    Ok(Parsed { entries, metadata, archive: None })
}

fn alignment(metadata: &Metadata) -> Result<u64, Problem> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    match value.as_u64() {
        Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => {
            Ok(alignment)
        }
        Some(_) | None => Err(Problem::invalid("general.alignment", "a power of two", value)),
    }
}

/// Reads one tensor description: name, axes (innermost first), type, and offset in the data.
fn read_description(cursor: &mut Cursor<'_>) -> Result<(TensorInfo, u64), Problem> {
    let name = text(cursor, "name of a tensor", limits::MAX_NAME_BYTES)?;
    let rank = u64::from(cursor.u32("number of axes")?);
    Problem::within("number of axes", MAX_AXES, rank)?;
    let mut axes = Vec::with_capacity(rank as usize);
    for _ in 0..rank {
        let axis = cursor.u64("length of an axis")?;
        let axis = usize::try_from(axis);
        axes.push(axis.map_err(|_| Problem::invalid(name, "an axis length", "a huge number"))?);
    }
    axes.reverse();
    let stored = stored_type(cursor.u32("element type")?);
    let offset = cursor.u64("offset of a tensor")?;
    let info = TensorInfo::new(name, stored, Shape::from(axes))?;
    Ok((info, offset))
}

/// The entry of a tensor at `offset` in `data`; an error if it is misaligned or leaves `data`.
fn locate(
    info: TensorInfo,
    offset: u64,
    alignment: u64,
    data: std::ops::Range<u64>,
) -> Result<Entry, Problem> {
    if !offset.is_multiple_of(alignment) {
        let what = format!("{}: offset", info.name);
        return Err(Problem::invalid(what, format!("a multiple of {alignment}"), offset));
    }
    let start = data.start.checked_add(offset);
    let end = start.and_then(|start| start.checked_add(info.bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= data.end => {
            let source = Source::Range(start as usize..end as usize);
            Ok(Entry { info, source })
        }
        (Some(_) | None, Some(_) | None) => Err(Problem::Truncated {
            wanted: info.bytes,
            found: data.end.saturating_sub(start.unwrap_or(u64::MAX)),
            what: info.name,
        }),
    }
}

fn text<'a>(cursor: &mut Cursor<'a>, what: &'static str, limit: u64) -> Result<&'a str, Problem> {
    let length = cursor.u64(what)?;
    Problem::within(what, limit, length)?;
    utf8(cursor.take(length, what)?, what)
}

fn read_metadata(cursor: &mut Cursor<'_>, pairs: u64) -> Result<Metadata, Problem> {
    let mut metadata = Metadata::new();
    let mut reader = ValueReader { values: 0 };
    for _ in 0..pairs {
        let key = text(cursor, "key of a metadata entry", limits::MAX_NAME_BYTES)?;
        let kind = cursor.u32("type of a metadata entry")?;
        let value = reader.value(cursor, kind, 0)?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(Problem::Duplicate(key.to_owned()));
        }
    }
    Ok(metadata)
}

/// Reads metadata values and counts them.
struct ValueReader {
    values: u64,
}

impl ValueReader {
    fn value(
        &mut self,
        cursor: &mut Cursor<'_>,
        kind: u32,
        depth: usize,
    ) -> Result<MetadataValue, Problem> {
        const WHAT: &str = "value of a metadata entry";
        self.values += 1;
        Problem::within("number of metadata values", limits::MAX_METADATA_VALUES, self.values)?;
        Ok(match kind {
            0 => MetadataValue::Unsigned(cursor.u8(WHAT)?.into()),
            1 => MetadataValue::Signed((cursor.u8(WHAT)? as i8).into()),
            2 => MetadataValue::Unsigned(cursor.u16(WHAT)?.into()),
            3 => MetadataValue::Signed((cursor.u16(WHAT)? as i16).into()),
            4 => MetadataValue::Unsigned(cursor.u32(WHAT)?.into()),
            5 => MetadataValue::Signed((cursor.u32(WHAT)? as i32).into()),
            6 => MetadataValue::Float(f32::from_bits(cursor.u32(WHAT)?).into()),
            7 => MetadataValue::Bool(cursor.u8(WHAT)? != 0),
            8 => MetadataValue::Text(text(cursor, WHAT, limits::MAX_TEXT_BYTES)?.to_owned()),
            9 => self.list(cursor, depth)?,
            10 => MetadataValue::Unsigned(cursor.u64(WHAT)?),
            11 => MetadataValue::Signed(cursor.u64(WHAT)? as i64),
            12 => MetadataValue::Float(f64::from_bits(cursor.u64(WHAT)?)),
            _ => return Err(Problem::invalid("type of a metadata entry", "0 to 12", kind)),
        })
    }

    fn list(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<MetadataValue, Problem> {
        if depth >= limits::MAX_METADATA_DEPTH {
            let limit = limits::MAX_METADATA_DEPTH as u64;
            return Err(Problem::Limit { what: "lists inside lists", limit, found: limit + 1 });
        }
        let kind = cursor.u32("type of list items")?;
        let length = cursor.u64("length of a list")?;
        Problem::within("length of a list", limits::MAX_METADATA_VALUES, length)?;
        // Every item takes at least one byte, so a length beyond the rest of the header is invalid.
        let mut items = Vec::with_capacity((length as usize).min(cursor.left() / 8));
        for _ in 0..length {
            items.push(self.value(cursor, kind, depth + 1)?);
        }
        Ok(MetadataValue::List(items))
    }
}
