//! A pickle interpreter that builds plain values and calls no code.
//!
//! Values are small and `Copy`. Lists, dicts, tuples, storages and tensors live in one table and are referred to by index,
//! so shared and circular structures need no reference counting and no recursion. Texts are spans of the pickle.

mod machine;
mod rebuild;

use std::ops::Range;

use crate::error::Problem;

use super::names::{Name, TorchType};

pub(super) use machine::run;

/// A value on the stack or in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    Text(Span),
    Name(Name),
    /// Index in [`Values::objects`].
    Object(u32),
    /// A value that cannot hold a tensor: a float, bytes, a large integer, a set.
    Inert,
}

/// A byte range of the pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.length as usize
    }
}

/// A compound value.
#[derive(Debug)]
pub(super) enum Object {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Storage(Storage),
    Tensor(TensorRecord),
    /// An instance of a class that is allowed and ignored.
    Inert,
}

/// A storage as described by the pickle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// Name of its archive entry below `data/`.
    pub(super) key: Span,
    pub(super) element: &'static TorchType,
    /// Number of elements.
    pub(super) elements: u64,
}

/// A tensor as described by the pickle, not yet checked against its storage.
#[derive(Clone, Debug)]
pub(super) struct TensorRecord {
    pub(super) storage: Storage,
    pub(super) element: &'static TorchType,
    /// Offset of the first element, in elements.
    pub(super) offset: u64,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// All values built by a pickle.
pub(super) struct Values<'a> {
    pickle: &'a [u8],
    objects: Vec<Object>,
    top: Value,
}

impl Values<'_> {
    /// The result of the pickle.
    pub(super) fn top(&self) -> Value {
        self.top
    }

    /// The object that a value refers to; `None` for simple values.
    pub(super) fn object(&self, value: Value) -> Option<&Object> {
        match value {
            Value::Object(place) => self.objects.get(place as usize),
            Value::None
            | Value::Bool
            | Value::Int(_)
            | Value::Text(_)
            | Value::Name(_)
            | Value::Inert => None,
        }
    }

    /// The text of a span.
    pub(super) fn text(&self, span: Span) -> Result<&str, Problem> {
        let bytes = self.pickle.get(span.range()).unwrap_or_default();
        crate::cursor::utf8(bytes, "text in the pickle")
    }
}
