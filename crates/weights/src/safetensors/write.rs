//! The safetensors writer.

use std::path::Path;

use cutout_tensor::{Tensor, TensorType};
use serde_json::{Map, Value, json};

use crate::error::{Problem, WeightsError};
use crate::limits;
use crate::metadata::{Metadata, MetadataValue};
use crate::outgoing::{OutgoingTensor, element_bytes, refuse, refuse_duplicates};
use crate::output::write_whole;

use super::TYPES;

/// Writes a safetensors file. Element types are kept, tensors with larger elements come first so that all are aligned, and
/// metadata values become text. One tensor is in memory at a time; the file appears once it is complete.
pub fn write_safetensors(
    path: impl AsRef<Path>,
    tensors: &[OutgoingTensor<'_>],
    metadata: &Metadata,
) -> Result<(), WeightsError> {
    let path = path.as_ref();
    let mut ordered: Vec<&OutgoingTensor<'_>> = tensors.iter().collect();
    ordered.sort_by_key(|tensor| (std::cmp::Reverse(tensor.ty.dtype.size()), &tensor.name));
    let declared: Vec<(&str, &TensorType)> =
        ordered.iter().map(|tensor| (tensor.name.as_str(), &tensor.ty)).collect();
    write(path, &declared, metadata, ordered.iter().map(|tensor| tensor.load(path)))
}

/// Writes a safetensors file from an iterator. `declared` declares name and type of every tensor; `tensors` yields them in
/// that order, and each is written before the next is requested. The order is kept: for aligned data, declare tensors with
/// larger elements first. An error from `tensors` stops the writing; the file appears once it is complete.
pub fn write_safetensors_in_turn<E: From<WeightsError>>(
    path: impl AsRef<Path>,
    declared: &[(String, TensorType)],
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = Result<Tensor, E>>,
) -> Result<(), E> {
    let declared: Vec<(&str, &TensorType)> =
        declared.iter().map(|(name, ty)| (name.as_str(), ty)).collect();
    write(path.as_ref(), &declared, metadata, tensors.into_iter())
}

fn write<E: From<WeightsError>>(
    path: &Path,
    declared: &[(&str, &TensorType)],
    metadata: &Metadata,
    mut tensors: impl Iterator<Item = Result<Tensor, E>>,
) -> Result<(), E> {
    refuse_duplicates(path, declared.iter().map(|(name, _)| *name))?;
    let header = header(path, declared, metadata)?;
    write_whole(path, |output| {
        output.write(&(header.len() as u64).to_le_bytes())?;
        output.write(&header)?;
        for (name, ty) in declared {
            let missing = || refuse(path, name, Problem::invalid("tensor", ty, "none"));
            let tensor = tensors.next().ok_or_else(missing)??;
            if tensor.ty() != *ty {
                return Err(refuse(path, name, Problem::invalid("type", ty, tensor.ty())).into());
            }
            output.write(&element_bytes(&tensor).map_err(|error| refuse(path, name, error))?)?;
        }
        match tensors.next() {
            Some(_) => {
                let problem = Problem::invalid("number of tensors", declared.len(), "more");
                Err(refuse(path, "the end of the file", problem).into())
            }
            None => Ok(()),
        }
    })
}

/// The JSON header, padded with spaces to a multiple of eight bytes.
fn header(
    path: &Path,
    tensors: &[(&str, &TensorType)],
    metadata: &Metadata,
) -> Result<Vec<u8>, WeightsError> {
    let mut object = Map::new();
    if !metadata.is_empty() {
        let texts = metadata.iter().map(|(key, value)| (key.clone(), json!(text(value))));
        object.insert("__metadata__".into(), Value::Object(texts.collect()));
    }
    let mut offset = 0u64;
    for (name, ty) in tensors {
        ty.shape.checked_len().map_err(|error| refuse(path, name, error))?;
        if *name == "__metadata__" {
            return Err(refuse(path, name, Problem::invalid("name", "any other name", name)));
        }
        let (dtype, _) = TYPES
            .iter()
            .find(|(_, dtype)| *dtype == ty.dtype)
            .expect("every element type has a name in safetensors");
        let end = offset.saturating_add(ty.bytes() as u64);
        let fields = json!({"dtype": dtype, "shape": &ty.shape[..], "data_offsets": [offset, end]});
        object.insert((*name).to_owned(), fields);
        offset = end;
    }
    let mut header = Value::Object(object).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    Problem::within("length of the header", limits::MAX_HEADER_BYTES, header.len() as u64)
        .map_err(|problem| WeightsError::Malformed {
            file: path.display().to_string(),
            format: crate::Format::Safetensors,
            problem,
        })?;
    Ok(header)
}

/// A metadata value as text, the only type of this format; lists become JSON.
fn text(value: &MetadataValue) -> String {
    fn json(value: &MetadataValue) -> Value {
        match value {
            MetadataValue::Text(text) => json!(text),
            MetadataValue::Unsigned(number) => json!(number),
            MetadataValue::Signed(number) => json!(number),
            MetadataValue::Float(number) => json!(number),
            MetadataValue::Bool(truth) => json!(truth),
            MetadataValue::List(items) => items.iter().map(json).collect(),
        }
    }
    match value {
        MetadataValue::Text(text) => text.clone(),
        MetadataValue::Unsigned(_)
        | MetadataValue::Signed(_)
        | MetadataValue::Float(_)
        | MetadataValue::Bool(_)
        | MetadataValue::List(_) => json(value).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_a_name() {
        for dtype in cutout_tensor::DType::ALL {
            assert!(TYPES.iter().any(|(_, known)| *known == dtype), "{dtype}");
        }
    }
}
