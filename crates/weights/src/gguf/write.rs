//! The GGUF writer, plain or quantised.

use std::path::Path;

use cutout_tensor::{DType, Tensor, TensorType};

use crate::error::{Format, Problem, WeightsError};
use crate::metadata::{Metadata, MetadataValue};
use crate::outgoing::{OutgoingTensor, convert, element_bytes, refuse_duplicates};
use crate::output::write_whole;
use crate::stored::StoredType;

use super::blocks::{self, BlockType};
use super::{BLOCKS, DEFAULT_ALIGNMENT, MAX_AXES, PLAIN};

/// Element type of the tensors in a written file.
///
/// Integer tensors keep their type under every encoding; `u8` and `bool`, which GGUF lacks, become `i32`. Vectors (biases,
/// norms, scales) and scalars become `f32`: they are small, and rounding errors in them matter most. Other tensors:
///
/// | encoding | matrices whose last axis is a multiple of 32 | other tensors of two and more axes |
/// |---|---|---|
/// | `Keep` | their type | their type |
/// | `F32`, `F16`, `Bf16` | that type | that type |
/// | `Q8_0`, `Q4_0` | quantised | `f16` |
///
/// A number beyond the range of `f16` (65504) is an error; it does not become infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The type in the source file, for vectors too.
    Keep,
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of `f32`.
    Bf16,
    /// Signed bytes in blocks of 32: 8.5 bits per number.
    Q8_0,
    /// Four-bit integers in blocks of 32: 4.5 bits per number.
    Q4_0,
}

impl Encoding {
    /// Whether matrices become quantised blocks, which only GGUF can hold.
    pub fn is_quantized(self) -> bool {
        match self {
            Encoding::Q8_0 | Encoding::Q4_0 => true,
            Encoding::Keep | Encoding::F32 | Encoding::F16 | Encoding::Bf16 => false,
        }
    }

    /// The stored type of a tensor of type `ty`.
    pub fn stored(self, ty: &TensorType) -> StoredType {
        if !ty.dtype.is_float() {
            return StoredType::Plain(match ty.dtype {
                DType::U8 | DType::Bool => DType::I32,
                DType::F32 | DType::F16 | DType::BF16 | DType::I8 | DType::I32 | DType::I64 => {
                    ty.dtype
                }
            });
        }
        if self == Encoding::Keep {
            return StoredType::Plain(ty.dtype);
        }
        if ty.rank() < 2 {
            return StoredType::Plain(DType::F32);
        }
        let blocks = ty.rank() == 2 && ty.shape.last_axis().is_multiple_of(32);
        match self {
            Encoding::Keep => StoredType::Plain(ty.dtype),
            Encoding::F32 => StoredType::Plain(DType::F32),
            Encoding::F16 => StoredType::Plain(DType::F16),
            Encoding::Bf16 => StoredType::Plain(DType::BF16),
            Encoding::Q8_0 if blocks => StoredType::Block(BlockType::Q8_0),
            Encoding::Q4_0 if blocks => StoredType::Block(BlockType::Q4_0),
            Encoding::Q8_0 | Encoding::Q4_0 => StoredType::Plain(DType::F16),
        }
    }
}

/// Writes a GGUF file, version 3. One tensor is in memory at a time; the file appears only once it is complete.
pub fn write_gguf(
    path: impl AsRef<Path>,
    tensors: &[OutgoingTensor<'_>],
    metadata: &Metadata,
    encoding: Encoding,
) -> Result<(), WeightsError> {
    let path = path.as_ref();
    refuse_duplicates(path, tensors.iter().map(|tensor| tensor.name.as_str()))?;
    let planned = tensors
        .iter()
        .map(|tensor| plan(tensor, encoding).map_err(|problem| tensor.refuse(path, problem)))
        .collect::<Result<Vec<_>, _>>()?;
    let header = header(tensors, &planned, metadata).map_err(|problem| {
        WeightsError::Malformed { file: path.display().to_string(), format: Format::Gguf, problem }
    })?;
    write_whole(path, |output| {
        output.write(&header)?;
        output.pad(header.len() as u64, DEFAULT_ALIGNMENT)?;
        for (tensor, (stored, length)) in tensors.iter().zip(&planned) {
            let loaded = tensor.load(path)?;
            let bytes = encode(&loaded, stored).map_err(|problem| tensor.refuse(path, problem))?;
            assert_eq!(bytes.len() as u64, *length, "the plan and the encoder agree on sizes");
            output.write(&bytes)?;
            output.pad(*length, DEFAULT_ALIGNMENT)?;
        }
        Ok(())
    })
}

/// Type and bytes of a tensor in the file.
fn plan(tensor: &OutgoingTensor<'_>, encoding: Encoding) -> Result<(StoredType, u64), Problem> {
    Problem::within("number of axes", MAX_AXES, tensor.ty.rank() as u64)?;
    let stored = encoding.stored(&tensor.ty);
    let bytes = stored.bytes(&tensor.ty.shape)?;
    Ok((stored, bytes))
}

fn encode(tensor: &Tensor, stored: &StoredType) -> Result<Vec<u8>, Problem> {
    let pack = match stored {
        StoredType::Plain(dtype) => {
            return Ok(element_bytes(&convert(tensor, *dtype)?)?);
        }
        StoredType::Block(BlockType::Q8_0) => blocks::pack_q8_0,
        StoredType::Block(BlockType::Q4_0) => blocks::pack_q4_0,
        StoredType::Block(BlockType::Q4K | BlockType::Q6K)
        | StoredType::F64
        | StoredType::Other { .. } => {
            return Err(Problem::Unsupported(format!("writing {stored}")));
        }
    };
    let mut packed = Vec::new();
    pack(&tensor.cast(DType::F32)?.to_vec::<f32>()?, &mut packed)?;
    Ok(packed)
}

fn header(
    tensors: &[OutgoingTensor<'_>],
    planned: &[(StoredType, u64)],
    metadata: &Metadata,
) -> Result<Vec<u8>, Problem> {
    let mut header = b"GGUF\x03\0\0\0".to_vec();
    // The metadata may come from a file with another alignment.
    let pairs = || metadata.iter().filter(|(key, _)| *key != "general.alignment");
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((pairs().count() as u64).to_le_bytes());
    for (key, value) in pairs() {
        push_text(&mut header, key);
        header.extend(kind(value).to_le_bytes());
        push_value(&mut header, value)?;
    }
    let mut offset = 0u64;
    for (tensor, (stored, bytes)) in tensors.iter().zip(planned) {
        push_text(&mut header, &tensor.name);
        header.extend((tensor.ty.rank() as u32).to_le_bytes());
        for &axis in tensor.ty.shape.iter().rev() {
            header.extend((axis as u64).to_le_bytes());
        }
        header.extend(number(stored)?.to_le_bytes());
        header.extend(offset.to_le_bytes());
        let end = offset.checked_add(*bytes).and_then(|end| end.checked_next_multiple_of(32));
        offset = end.ok_or_else(|| Problem::invalid("size of the file", "64 bits", "more"))?;
    }
    Ok(header)
}

/// Number of an element type in the file.
fn number(stored: &StoredType) -> Result<u32, Problem> {
    let found = match stored {
        StoredType::Plain(dtype) => PLAIN.iter().find(|(_, known)| known == dtype).map(|x| x.0),
        StoredType::Block(block) => BLOCKS.iter().find(|(_, known)| known == block).map(|x| x.0),
        StoredType::F64 | StoredType::Other { .. } => None,
    };
    found.ok_or_else(|| Problem::Unsupported(format!("writing {stored}")))
}

fn push_text(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text.as_bytes());
}

/// Type number of a metadata value: the widest type of its kind, but `u32` for small integers, because readers of the
/// well-known keys expect `u32`.
fn kind(value: &MetadataValue) -> u32 {
    match value {
        MetadataValue::Unsigned(number) if u32::try_from(*number).is_ok() => 4,
        MetadataValue::Unsigned(_) => 10,
        MetadataValue::Signed(_) => 11,
        MetadataValue::Float(_) => 12,
        MetadataValue::Bool(_) => 7,
        MetadataValue::Text(_) => 8,
        MetadataValue::List(_) => 9,
    }
}

/// Type number of the items of a list.
fn item_kind(items: &[MetadataValue]) -> Result<u32, Problem> {
    // Empty lists are written as lists of text; integers of a list as `u64`.
    let Some(first) = items.first() else { return Ok(8) };
    let widen = |kind| if kind == 4 { 10 } else { kind };
    let wanted = widen(kind(first));
    for item in items {
        if widen(kind(item)) != wanted {
            return Err(Problem::invalid("list in the metadata", "items of one type", item));
        }
    }
    Ok(wanted)
}

fn push_value(header: &mut Vec<u8>, value: &MetadataValue) -> Result<(), Problem> {
    match value {
        MetadataValue::Unsigned(number) => match u32::try_from(*number) {
            Ok(number) => header.extend(number.to_le_bytes()),
            Err(_) => header.extend(number.to_le_bytes()),
        },
        MetadataValue::Signed(number) => header.extend(number.to_le_bytes()),
        MetadataValue::Float(number) => header.extend(number.to_le_bytes()),
        MetadataValue::Bool(truth) => header.push(u8::from(*truth)),
        MetadataValue::Text(text) => push_text(header, text),
        MetadataValue::List(items) => {
            header.extend(item_kind(items)?.to_le_bytes());
            header.extend((items.len() as u64).to_le_bytes());
            for item in items {
                // All integers of a list have the same width; see `item_kind`.
                if let MetadataValue::Unsigned(number) = item {
                    header.extend(number.to_le_bytes());
                } else {
                    push_value(header, item)?;
                }
            }
        }
    }
    Ok(())
}
