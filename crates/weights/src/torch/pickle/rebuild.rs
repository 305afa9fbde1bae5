//! Results of the allowed functions and classes.

use crate::error::Problem;
use crate::limits;

use super::super::names::{Name, TorchType};
use super::machine::Machine;
use super::{Object, Storage, TensorRecord, Value, Values};

impl Machine<'_> {
    /// `REDUCE` and `NEWOBJ`: pops arguments and a name, and pushes the result that the name's rule builds.
    pub(super) fn call(&mut self) -> Result<(), Problem> {
        let arguments = self.pop()?;
        let Value::Name(name) = self.pop()? else {
            return Err(Problem::invalid("REDUCE", "a name of the allow-list", "another value"));
        };
        match self.values.rebuild(name, arguments)? {
            Built::Value(value) => self.push(value),
            Built::Object(object) => self.make(object),
        }
    }

    /// A storage: `('storage', type, key, location, elements)`.
    pub(super) fn persistent(&mut self) -> Result<(), Problem> {
        let identity = self.pop()?;
        let fields = self.values.tuple(identity, "persistent id")?;
        let &[
            Value::Text(kind),
            Value::Name(Name::Storage(element)),
            Value::Text(key),
            _,
            Value::Int(elements),
        ] = fields
        else {
            return Err(Problem::invalid("persistent id", "the description of a storage", "other"));
        };
        let kind = self.values.text(kind)?;
        if kind != "storage" {
            return Err(Problem::invalid("persistent id", "storage", kind));
        }
        let elements = u64::try_from(elements)
            .map_err(|_| Problem::invalid("elements of a storage", "a count", elements))?;
        self.make(Object::Storage(Storage { key, element, elements }))
    }
}

/// Result of a rule.
enum Built {
    Value(Value),
    Object(Object),
}

impl Values<'_> {
    fn rebuild(&self, name: Name, arguments: Value) -> Result<Built, Problem> {
        let given = self.tuple(arguments, "arguments")?;
        let first = || match given.first() {
            Some(&value) => Ok(value),
            None => Err(Problem::invalid("arguments", "at least one", "none")),
        };
        Ok(match name {
            Name::OrderedDict | Name::DefaultDict => Built::Object(self.dict(name, given)?),
            Name::RebuildTensor => Built::Object(self.tensor(given, None)?),
            Name::RebuildTyped => {
                let Some(Value::Name(Name::Element(element))) = given.get(6) else {
                    return Err(Problem::invalid("_rebuild_tensor_v3", "an element type", "none"));
                };
                Built::Object(self.tensor(given, Some(element))?)
            }
            Name::RebuildParameter => Built::Value(self.expect_tensor(first()?)?),
            Name::RebuildFromType => return self.rebuild_from_type(given),
            Name::Size => {
                let axes = self.sequence(first()?, "torch.Size")?;
                Built::Object(Object::Tuple(axes.to_vec()))
            }
            Name::Inert | Name::Element(_) => Built::Object(Object::Inert),
            Name::Storage(_) => {
                return Err(Problem::invalid("arguments", "a function", "a storage type"));
            }
        })
    }

    /// `(function, type, arguments, state)`, where the function rebuilds a tensor.
    fn rebuild_from_type(&self, given: &[Value]) -> Result<Built, Problem> {
        match given {
            &[Value::Name(name), _, arguments, ..] if name != Name::RebuildFromType => {
                self.rebuild(name, arguments)
            }
            _ => Err(Problem::invalid("_rebuild_from_type_v2", "a rebuilding function", "other")),
        }
    }

    /// `OrderedDict()` or `OrderedDict([(key, value), …])`; the argument of a `defaultdict` is its factory.
    fn dict(&self, name: Name, given: &[Value]) -> Result<Object, Problem> {
        let items = match given.first() {
            Some(&items) if name == Name::OrderedDict => self.sequence(items, "OrderedDict")?,
            Some(_) | None => &[],
        };
        let mut dict = Vec::with_capacity(items.len());
        for &item in items {
            match self.sequence(item, "OrderedDict")? {
                &[key, value] => dict.push((key, value)),
                _ => return Err(Problem::invalid("OrderedDict", "pairs", "other values")),
            }
        }
        Ok(Object::Dict(dict))
    }

    /// `(storage, offset, size, stride, …)`.
    fn tensor(
        &self,
        given: &[Value],
        element: Option<&'static TorchType>,
    ) -> Result<Object, Problem> {
        const WHAT: &str = "description of a tensor";
        let &[storage, Value::Int(offset), shape, strides, ..] = given else {
            return Err(Problem::invalid(WHAT, "storage, offset, size and stride", "other"));
        };
        let Some(Object::Storage(storage)) = self.object(storage) else {
            return Err(Problem::invalid(WHAT, "a storage", "another value"));
        };
        let offset = u64::try_from(offset);
        let record = TensorRecord {
            storage: *storage,
            element: element.unwrap_or(storage.element),
            offset: offset.map_err(|_| Problem::invalid(WHAT, "an offset", "a negative one"))?,
            shape: self.counts(shape, "shape of a tensor")?,
            strides: self.counts(strides, "strides of a tensor")?,
        };
        if record.shape.len() != record.strides.len() {
            let (wanted, found) = (record.shape.len(), record.strides.len());
            return Err(Problem::invalid("strides of a tensor", wanted, found));
        }
        Ok(Object::Tensor(record))
    }

    fn expect_tensor(&self, value: Value) -> Result<Value, Problem> {
        match self.object(value) {
            Some(Object::Tensor(_)) => Ok(value),
            Some(_) | None => Err(Problem::invalid("_rebuild_parameter", "a tensor", "other")),
        }
    }

    fn tuple(&self, value: Value, what: &str) -> Result<&[Value], Problem> {
        match self.object(value) {
            Some(Object::Tuple(items)) => Ok(items),
            Some(_) | None => Err(Problem::invalid(what, "a tuple", "another value")),
        }
    }

    fn sequence(&self, value: Value, what: &str) -> Result<&[Value], Problem> {
        match self.object(value) {
            Some(Object::Tuple(items) | Object::List(items)) => Ok(items),
            Some(_) | None => Err(Problem::invalid(what, "a list", "another value")),
        }
    }

    /// A sequence of non-negative integers.
    fn counts(&self, value: Value, what: &'static str) -> Result<Vec<usize>, Problem> {
        let items = self.sequence(value, what)?;
        Problem::within("number of axes", limits::MAX_RANK, items.len() as u64)?;
        let count = |item: &Value| match *item {
            Value::Int(number) => {
                usize::try_from(number).map_err(|_| Problem::invalid(what, "a count", number))
            }
            Value::None
            | Value::Bool
            | Value::Text(_)
            | Value::Name(_)
            | Value::Object(_)
            | Value::Inert => Err(Problem::invalid(what, "whole numbers", "another value")),
        };
        items.iter().map(count).collect()
    }
}
