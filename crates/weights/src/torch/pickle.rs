//! A pickle machine that can build values and nothing else.
//!
//! Values are small and copied; lists, dicts, tuples, storages and tensors live in one table and are named by their
//! place in it, so shared and even circular structures need no reference counting and cannot leak or recurse. Texts
//! stay where they are in the pickle.

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
    /// Place in [`Values::objects`].
    Object(u32),
    /// Something that cannot hold a tensor: a float, bytes, a large number, a set.
    Inert,
}

/// A piece of the pickle.
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

/// A value with parts.
#[derive(Debug)]
pub(super) enum Object {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Storage(Storage),
    Tensor(TensorRecord),
    /// The result of naming something harmless.
    Inert,
}

/// A storage, as the pickle describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// Name of its entry below `data/`.
    pub(super) key: Span,
    pub(super) element: &'static TorchType,
    /// Elements it holds.
    pub(super) elements: u64,
}

/// A tensor, as the pickle describes it; nothing about it has been compared with its storage.
#[derive(Clone, Debug)]
pub(super) struct TensorRecord {
    pub(super) storage: Storage,
    pub(super) element: &'static TorchType,
    /// Position of the first element, in elements.
    pub(super) offset: u64,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// Everything a pickle has built.
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

    /// The object behind a value, if it has parts.
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

    /// The text behind a span.
    pub(super) fn text(&self, span: Span) -> Result<&str, Problem> {
        let bytes = self.pickle.get(span.range()).unwrap_or_default();
        crate::cursor::utf8(bytes, "text in the pickle")
    }
}
