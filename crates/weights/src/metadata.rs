//! Metadata of a checkpoint: the key-value pairs stored beside the tensors.

use std::collections::BTreeMap;
use std::fmt;

/// Entries by key: safetensors' `__metadata__`, or GGUF's key-value pairs.
pub type Metadata = BTreeMap<String, MetadataValue>;

/// One value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// Text (every value of a safetensors file).
    Text(String),
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A list of values of one type.
    List(Vec<MetadataValue>),
}

impl MetadataValue {
    /// The text, if the value is a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            MetadataValue::Text(text) => Some(text),
            MetadataValue::Unsigned(_)
            | MetadataValue::Signed(_)
            | MetadataValue::Float(_)
            | MetadataValue::Bool(_)
            | MetadataValue::List(_) => None,
        }
    }

    /// The integer, if the value is an integer and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            MetadataValue::Unsigned(number) => Some(*number),
            MetadataValue::Signed(number) => u64::try_from(*number).ok(),
            MetadataValue::Text(_)
            | MetadataValue::Float(_)
            | MetadataValue::Bool(_)
            | MetadataValue::List(_) => None,
        }
    }
}

impl From<String> for MetadataValue {
    fn from(text: String) -> Self {
        MetadataValue::Text(text)
    }
}

impl From<&str> for MetadataValue {
    fn from(text: &str) -> Self {
        MetadataValue::Text(text.to_owned())
    }
}

impl From<u64> for MetadataValue {
    fn from(number: u64) -> Self {
        MetadataValue::Unsigned(number)
    }
}

/// Prints texts without quotes, and the first eight items of lists.
impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::Text(text) => f.write_str(text),
            MetadataValue::Unsigned(number) => write!(f, "{number}"),
            MetadataValue::Signed(number) => write!(f, "{number}"),
            MetadataValue::Float(number) => write!(f, "{number}"),
            MetadataValue::Bool(truth) => write!(f, "{truth}"),
            MetadataValue::List(items) => {
                let shown: Vec<String> = items.iter().take(8).map(ToString::to_string).collect();
                let rest = if items.len() > shown.len() { ", …" } else { "" };
                write!(f, "[{}{rest}]", shown.join(", "))
            }
        }
    }
}
