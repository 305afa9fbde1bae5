//! The weights that a graph's parameters are bound to, and everything derived from them.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutout_tensor::{StorageId, Tensor, TensorType};

use crate::graph::Graph;

/// Named weights, the constants that passes have folded from them, and what backends have made of both. Shared by
/// every program of a model, so each tensor is derived and packed once.
#[derive(Default)]
pub struct Weights {
    tensors: HashMap<String, Tensor>,
    derived: Mutex<HashMap<Arc<str>, Tensor>>,
    prepared: Mutex<HashMap<(StorageId, String), Prepared>>,
}

/// A backend's form of a tensor, with the tensor itself, which keeps its [`StorageId`] from being used again.
struct Prepared {
    _source: Tensor,
    form: Arc<dyn Any + Send + Sync>,
}

/// Everything that is wrong between a graph and its weights, at once.
#[derive(Clone, Debug, Default, PartialEq, thiserror::Error)]
pub struct BindError {
    /// Weights the graph needs and the checkpoint lacks.
    pub missing: Vec<String>,
    /// Weights with another shape or an element type that is no float: path, wanted, found.
    pub mismatched: Vec<(String, TensorType, TensorType)>,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = self.missing.iter().map(|path| format!("{path}: missing"));
        let mismatched = self.mismatched.iter().map(|(path, expected, found)| {
            format!("{path}: expected {expected}, checkpoint has {found}")
        });
        f.write_str(&missing.chain(mismatched).collect::<Vec<_>>().join("\n"))
    }
}

impl Weights {
    /// Weights by path.
    pub fn new(tensors: HashMap<String, Tensor>) -> Self {
        Weights { tensors, ..Weights::default() }
    }

    /// One weight.
    pub fn get(&self, path: &str) -> Option<&Tensor> {
        self.tensors.get(path)
    }

    /// Paths of all weights, unordered.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Checks that every parameter of `graph` is there with its shape, in some float type.
    pub fn check(&self, graph: &Graph) -> Result<(), BindError> {
        let mut error = BindError::default();
        for (path, id) in graph.parameters() {
            let expected = graph.ty(id);
            match self.get(path).map(Tensor::ty) {
                None => error.missing.push(path.to_owned()),
                Some(found) if found.shape != expected.shape || !found.dtype.is_float() => {
                    error.mismatched.push((path.to_owned(), expected.clone(), found.clone()));
                }
                Some(_) => {}
            }
        }
        if error == BindError::default() { Ok(()) } else { Err(error) }
    }

    /// The tensor that `name` describes, computed by `make` the first time.
    pub(crate) fn derived<E>(
        &self,
        name: &Arc<str>,
        make: impl FnOnce() -> Result<Tensor, E>,
    ) -> Result<Tensor, E> {
        if let Some(tensor) = locked(&self.derived).get(name) {
            return Ok(tensor.clone());
        }
        let tensor = make()?;
        Ok(locked(&self.derived).entry(name.clone()).or_insert(tensor).clone())
    }

    /// How many forms of tensors backends have made so far.
    pub fn prepared_count(&self) -> usize {
        locked(&self.prepared).len()
    }

    /// What a backend has made of `tensor` in the form that `form` names, made by `make` the first time. The same
    /// name must always stand for the same type. The form replaces the tensor: where it comes from a file, the file's pages
    /// need not stay in memory beside it.
    pub fn prepared<T: Any + Send + Sync, E>(
        &self,
        tensor: &Tensor,
        form: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = (tensor.storage_id(), form.to_owned());
        let known = locked(&self.prepared).get(&key).map(|prepared| Arc::clone(&prepared.form));
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        tensor.release();
        let prepared = Prepared { _source: tensor.clone(), form: made.clone() };
        locked(&self.prepared).insert(key, prepared);
        Ok(made)
    }
}

/// A panic while holding one of these locks leaves the map as it was: an entry is added whole or not at all.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
