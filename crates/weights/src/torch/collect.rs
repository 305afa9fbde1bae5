//! Finds the state dict in the values of a pickle.

use crate::error::Problem;
use crate::limits;

use super::pickle::{Object, TensorRecord, Value, Values};

/// Keys under which training scripts store the state dict, in order of preference.
const WRAPPERS: &[&str] =
    &["model", "state_dict", "model_state_dict", "module", "net", "network", "params", "ema"];

/// The tensors of the state dict with their names, in file order.
///
/// The state dict is the top dict, or the dict under one of the [`WRAPPERS`] if the top dict itself holds no tensor. Nested
/// dicts prefix the names with their key and a dot. Other values are skipped.
pub(super) fn state_dict<'a>(
    values: &'a Values<'_>,
) -> Result<Vec<(String, &'a TensorRecord)>, Problem> {
    let mut collector = Collector { values, tensors: Vec::new(), visits: 0 };
    let top = collector.unwrap(values.top())?;
    collector.walk(top, "", 0)?;
    if collector.tensors.is_empty() {
        return Err(Problem::NoTensors);
    }
    Ok(collector.tensors)
}

struct Collector<'a, 'p> {
    values: &'a Values<'p>,
    tensors: Vec<(String, &'a TensorRecord)>,
    /// Number of visited values; limits the work on recursive or heavily shared structures.
    visits: u64,
}

impl<'a> Collector<'a, '_> {
    fn visit(&mut self) -> Result<(), Problem> {
        self.visits += 1;
        Problem::within("values in the dicts of the file", limits::MAX_DICT_VISITS, self.visits)?;
        Ok(())
    }

    fn dict(&self, value: Value) -> Option<&'a [(Value, Value)]> {
        match self.values.object(value) {
            Some(Object::Dict(pairs)) => Some(pairs),
            Some(_) | None => None,
        }
    }

    /// Follows the wrappers down to the state dict.
    fn unwrap(&mut self, top: Value) -> Result<Value, Problem> {
        let mut current = top;
        for _ in 0..limits::MAX_DICT_DEPTH {
            let Some(pairs) = self.dict(current) else { break };
            let mut inner = None;
            for &(key, value) in pairs {
                self.visit()?;
                match self.values.object(value) {
                    Some(Object::Tensor(_)) => return Ok(current),
                    Some(Object::Dict(_)) => {
                        let rank = self.wrapper_rank(key)?;
                        inner = rank
                            .map(|rank| (rank, value))
                            .into_iter()
                            .chain(inner)
                            .min_by_key(|x| x.0);
                    }
                    Some(_) | None => {}
                }
            }
            match inner {
                Some((_, value)) => current = value,
                None => break,
            }
        }
        Ok(current)
    }

    fn wrapper_rank(&self, key: Value) -> Result<Option<usize>, Problem> {
        let Value::Text(span) = key else { return Ok(None) };
        let key = self.values.text(span)?;
        Ok(WRAPPERS.iter().position(|wrapper| *wrapper == key))
    }

    /// Lists the tensors of a dict. Recursion ends at [`limits::MAX_DICT_DEPTH`].
    fn walk(&mut self, value: Value, prefix: &str, depth: usize) -> Result<(), Problem> {
        let Some(pairs) = self.dict(value) else { return Ok(()) };
        if depth >= limits::MAX_DICT_DEPTH {
            let limit = limits::MAX_DICT_DEPTH as u64;
            return Err(Problem::Limit { what: "dicts inside dicts", limit, found: limit + 1 });
        }
        for &(key, value) in pairs {
            self.visit()?;
            let (Value::Text(key), Some(object)) = (key, self.values.object(value)) else {
                continue;
            };
            let name = || Ok::<_, Problem>(format!("{prefix}{}", self.values.text(key)?));
            match object {
                Object::Tensor(record) => {
                    let name = name()?;
                    Problem::within("name of a tensor", limits::MAX_NAME_BYTES, name.len() as u64)?;
                    let found = self.tensors.len() as u64 + 1;
                    Problem::within("number of tensors", limits::MAX_TENSORS, found)?;
                    self.tensors.push((name, record));
                }
                Object::Dict(_) => {
                    let prefix = name()? + ".";
                    self.walk(value, &prefix, depth + 1)?;
                }
                Object::Tuple(_) | Object::List(_) | Object::Storage(_) | Object::Inert => {}
            }
        }
        Ok(())
    }
}
