//! The JSON header of a safetensors file; limits are checked during parsing.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::error::Problem;
use crate::limits;
use crate::metadata::{Metadata, MetadataValue};

/// One tensor of the header, unchecked.
#[derive(Debug)]
pub(super) struct HeaderTensor {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) offsets: [u64; 2],
}

/// The whole header.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) tensors: Vec<HeaderTensor>,
    pub(super) metadata: Metadata,
}

impl Header {
    pub(super) fn read(json: &[u8]) -> Result<Header, Problem> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let header = reader.deserialize_map(HeaderVisitor);
        let header = header.and_then(|header| reader.end().map(|()| header));
        header.map_err(|error| Problem::invalid("header", "a JSON object of tensors", error))
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            check::<A::Error>("bytes of a name", name.len(), limits::MAX_NAME_BYTES)?;
            if name == "__metadata__" {
                if !header.metadata.is_empty() {
                    return Err(A::Error::custom("__metadata__ appears twice"));
                }
                header.metadata = map.next_value_seed(MetadataSeed)?;
                continue;
            }
            check::<A::Error>("tensors", header.tensors.len() + 1, limits::MAX_TENSORS)?;
            let fields: Fields = map.next_value()?;
            let Fields { dtype, shape: Axes(shape), data_offsets: offsets } = fields;
            check::<A::Error>("bytes of an element type", dtype.len(), limits::MAX_NAME_BYTES)?;
            header.tensors.push(HeaderTensor { name, dtype, shape, offsets });
        }
        Ok(header)
    }
}

fn check<E: Error>(what: &str, found: usize, limit: u64) -> Result<(), E> {
    if found as u64 <= limit {
        return Ok(());
    }
    Err(E::custom(format_args!("{found} {what} are more than the {limit} allowed")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    dtype: String,
    shape: Axes,
    data_offsets: [u64; 2],
}

/// Axis lengths, at most [`limits::MAX_RANK`].
struct Axes(Vec<u64>);

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AxesVisitor;
        impl<'de> Visitor<'de> for AxesVisitor {
            type Value = Axes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of axis lengths")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Axes, A::Error> {
                let mut axes = Vec::new();
                while let Some(axis) = list.next_element()? {
                    check::<A::Error>("axes", axes.len() + 1, limits::MAX_RANK)?;
                    axes.push(axis);
                }
                Ok(Axes(axes))
            }
        }
        deserializer.deserialize_seq(AxesVisitor)
    }
}

/// `__metadata__`: text by key.
struct MetadataSeed;

impl<'de> DeserializeSeed<'de> for MetadataSeed {
    type Value = Metadata;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Metadata, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut metadata = Metadata::new();
        while let Some((key, text)) = map.next_entry::<String, String>()? {
            check::<A::Error>("metadata values", metadata.len() + 1, limits::MAX_METADATA_VALUES)?;
            check::<A::Error>("bytes of a key", key.len(), limits::MAX_NAME_BYTES)?;
            check::<A::Error>("bytes of a text", text.len(), limits::MAX_TEXT_BYTES)?;
            metadata.insert(key, MetadataValue::Text(text));
        }
        Ok(metadata)
    }
}
