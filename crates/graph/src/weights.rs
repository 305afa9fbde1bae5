//! The weights that a graph's parameters are bound to, and everything derived from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cutout_tensor::{Tensor, TensorType};

use crate::graph::Graph;

/// Named weights, and the constants that passes have folded from them. Shared by every program of a model, so each
/// derived tensor is computed once.
#[derive(Default)]
pub struct Weights {
    tensors: HashMap<String, Tensor>,
    derived: Mutex<HashMap<Arc<str>, Tensor>>,
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
        Weights { tensors, derived: Mutex::default() }
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
        // A panic while holding the lock leaves the map as it was: an entry is added whole or not at all.
        let locked = || self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tensor) = locked().get(name) {
            return Ok(tensor.clone());
        }
        let tensor = make()?;
        Ok(locked().entry(name.clone()).or_insert(tensor).clone())
    }
}
