//! Writing safetensors.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::{Problem, WeightsError};
use crate::limits;
use crate::metadata::{Metadata, MetadataValue};
use crate::outgoing::{OutgoingTensor, element_bytes, refuse_duplicates};
use crate::output::write_whole;

use super::TYPES;

/// Writes a safetensors file: element types are kept, tensors of wide elements come first so that all are aligned, and
/// the metadata becomes text. One tensor is in memory at a time; the file appears only once it is complete.
pub fn write_safetensors(
    path: impl AsRef<Path>,
    tensors: &[OutgoingTensor<'_>],
    metadata: &Metadata,
) -> Result<(), WeightsError> {
    let path = path.as_ref();
    refuse_duplicates(path, tensors)?;
    let mut ordered: Vec<&OutgoingTensor<'_>> = tensors.iter().collect();
    ordered.sort_by_key(|tensor| (std::cmp::Reverse(tensor.ty.dtype.size()), &tensor.name));
    let header = header(path, &ordered, metadata)?;
    write_whole(path, |output| {
        output.write(&(header.len() as u64).to_le_bytes())?;
        output.write(&header)?;
        for tensor in &ordered {
            let loaded = tensor.load(path)?;
            output.write(&element_bytes(&loaded).map_err(|error| tensor.refuse(path, error))?)?;
        }
        Ok(())
    })
}

/// The JSON header, padded with blanks to a multiple of eight bytes.
fn header(
    path: &Path,
    tensors: &[&OutgoingTensor<'_>],
    metadata: &Metadata,
) -> Result<Vec<u8>, WeightsError> {
    let mut object = Map::new();
    if !metadata.is_empty() {
        let texts = metadata.iter().map(|(key, value)| (key.clone(), json!(text(value))));
        object.insert("__metadata__".into(), Value::Object(texts.collect()));
    }
    let mut offset = 0u64;
    for tensor in tensors {
        let elements = tensor.ty.shape.checked_len();
        elements.map_err(|error| tensor.refuse(path, error))?;
        if tensor.name == "__metadata__" {
            let problem = Problem::invalid("name", "any other name", &tensor.name);
            return Err(tensor.refuse(path, problem));
        }
        let (dtype, _) = TYPES
            .iter()
            .find(|(_, dtype)| *dtype == tensor.ty.dtype)
            .expect("every element type has a name in safetensors");
        let end = offset.saturating_add(tensor.ty.bytes() as u64);
        let fields =
            json!({"dtype": dtype, "shape": &tensor.ty.shape[..], "data_offsets": [offset, end]});
        object.insert(tensor.name.clone(), fields);
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

/// A metadata value as the only type this format has; lists become JSON.
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
