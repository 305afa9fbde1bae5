//! The weights of a graph's parameters, and the packed and folded tensors derived from them.
//!
//! The life of a weight:
//!
//! ```text
//! source   a view of the mapped file, or a tensor that is joined or decoded on use
//!   │ folding: views (reshape, permute, slice) stay sources; computed constants are cached as folded
//!   ▼
//! known    a weight or folded constant of a graph, by name; not read yet
//!   │ prepared: packed by a backend, once for all programs          │ plain: read unpacked by kernels
//!   ▼                                                               ▼
//! form     the only copy: pages of the file are released,         the mapped file itself, or one copy of a tensor
//!          joined, decoded and folded tensors are dropped          that is joined, decoded, cast or small
//! ```

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutout_tensor::{DType, LazyTensor, StorageId, Tensor, TensorError, TensorType};

use crate::CompileError;
use crate::graph::{Constant, Graph, Kind};

/// Most bytes of a mapped tensor that is copied instead of read in place. The system maps so many bytes around an address that is
/// read; of a file in which biases lie between matrices, all biases together would keep a page of that size each.
const MOST_COPIED: usize = 64 << 10;

/// Named weights, constants folded from them, and packed forms of both. Shared by every program of a model, so each
/// tensor is derived and packed once.
#[derive(Default)]
pub struct Weights {
    sources: HashMap<String, LazyTensor>,
    folded: Mutex<HashMap<Arc<str>, Folded>>,
    forms: Mutex<HashMap<FormKey, Form>>,
}

/// A constant that was computed for some graph.
#[derive(Clone)]
pub(crate) enum Folded {
    /// The tensor, in memory.
    Kept(Tensor),
    /// Dropped because a backend has it packed. Later graphs compute it only if a kernel asks for another form.
    Packed,
}

/// The weights with the packed forms of one device.
#[derive(Clone, Copy)]
pub struct DeviceWeights<'a> {
    weights: &'a Weights,
    device: &'a str,
}

/// Key of a packed or copied tensor: device, tensor and form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FormKey {
    device: String,
    tensor: Key,
    form: String,
}

/// Packed form of a weight in a backend.
pub trait Packed: Any + Send + Sync {
    /// Bytes of memory it takes.
    fn bytes(&self) -> usize;
}

impl<T: Packed> Packed for Vec<T> {
    fn bytes(&self) -> usize {
        self.iter().map(T::bytes).sum()
    }
}

/// A static tensor of a graph: a weight or constant, read on use.
#[derive(Clone, Debug)]
pub struct StaticTensor {
    key: Key,
    value: LazyTensor,
}

/// Key of a weight or constant among the same weights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The path of a weight, or the expression that a constant was folded from.
    Named(Arc<str>),
    /// A constant of one graph.
    Unnamed(StorageId),
}

/// A packed or copied tensor.
struct Form {
    form: Arc<dyn Any + Send + Sync>,
    memory: WeightMemory,
    /// An unnamed constant, kept alive because its storage address is the key.
    _unnamed: Option<Tensor>,
}

/// Bytes of memory held by weights, without the pages of mapped files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightMemory {
    /// Packed forms.
    pub packed: usize,
    /// Unpacked copies of joined, decoded, cast or small tensors.
    pub plain: usize,
    /// Folded constants that are not packed.
    pub folded: usize,
}

/// All missing and mismatched weights of a graph.
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
        Weights::lazy(tensors.into_iter().map(|(path, tensor)| (path, tensor.into())).collect())
    }

    /// Weights by path, each read on use.
    pub fn lazy(sources: HashMap<String, LazyTensor>) -> Self {
        Weights { sources, ..Weights::default() }
    }

    /// One weight.
    pub fn get(&self, path: &str) -> Option<&LazyTensor> {
        self.sources.get(path)
    }

    /// Paths of all weights, unordered.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Checks that every parameter of `graph` is there with its shape, in some float type.
    pub fn check(&self, graph: &Graph) -> Result<(), BindError> {
        let mut error = BindError::default();
        for (path, id) in graph.parameters() {
            let expected = graph.ty(id);
            match self.get(path).map(LazyTensor::ty) {
                None => error.missing.push(path.to_owned()),
                Some(found) if found.shape != expected.shape || !found.dtype.is_float() => {
                    error.mismatched.push((path.to_owned(), expected.clone(), found.clone()));
                }
                Some(_) => {}
            }
        }
        if error == BindError::default() { Ok(()) } else { Err(error) }
    }

    /// The folded tensor `name`, if some graph has computed it.
    pub(crate) fn folded(&self, name: &Arc<str>) -> Option<Folded> {
        locked(&self.folded).get(name).cloned()
    }

    /// Keeps a folded tensor for all graphs. Returns the first of this name.
    pub(crate) fn keep_folded(&self, name: &Arc<str>, tensor: Tensor) -> Tensor {
        let mut folded = locked(&self.folded);
        match folded.entry(name.clone()).or_insert_with(|| Folded::Kept(tensor.clone())) {
            Folded::Kept(first) => first.clone(),
            Folded::Packed => tensor,
        }
    }

    /// The weight or constant of a node; `None` for inputs, ops, and weights that are not there.
    pub fn known(&self, node: &Kind) -> Option<StaticTensor> {
        match node {
            Kind::Parameter(path) => {
                let value = self.get(path)?.clone();
                Some(StaticTensor { key: Key::Named(path.as_str().into()), value })
            }
            Kind::Constant(Constant { value, name: Some(name) }) => {
                Some(StaticTensor { key: Key::Named(name.clone()), value: value.clone() })
            }
            Kind::Constant(Constant { value, name: None }) => {
                let tensor = value.ready().expect("only what has a name is made later");
                Some(StaticTensor { key: Key::Unnamed(tensor.storage_id()), value: value.clone() })
            }
            Kind::Input(_) | Kind::Op(_) => None,
        }
    }

    /// The weights with the packed forms of `device`.
    pub fn on<'a>(&'a self, device: &'a str) -> DeviceWeights<'a> {
        DeviceWeights { weights: self, device }
    }

    /// Drops all packed, copied and folded tensors. Existing programs keep the tensors they use; later programs pack
    /// again.
    pub fn evict(&self) {
        locked(&self.forms).clear();
        locked(&self.folded).clear();
    }

    /// Number of cached forms.
    pub fn form_count(&self) -> usize {
        locked(&self.forms).len()
    }

    /// Memory held by the weights now.
    pub fn memory(&self) -> WeightMemory {
        let forms = locked(&self.forms);
        WeightMemory {
            packed: forms.values().map(|form| form.memory.packed).sum(),
            plain: forms.values().map(|form| form.memory.plain).sum(),
            folded: locked(&self.folded).values().map(Folded::bytes).sum(),
        }
    }
}

impl Folded {
    fn bytes(&self) -> usize {
        match self {
            Folded::Kept(tensor) => tensor.ty().bytes(),
            Folded::Packed => 0,
        }
    }

    /// Whether it is more than one number.
    fn is_table(&self) -> bool {
        match self {
            Folded::Kept(tensor) => tensor.shape().elements() > 1,
            Folded::Packed => true,
        }
    }
}

impl DeviceWeights<'_> {
    /// The weight or constant of a node; see [`Weights::known`].
    pub fn known(&self, node: &Kind) -> Option<StaticTensor> {
        self.weights.known(node)
    }

    /// The packed form `form` of a tensor: cached, or computed by `pack`. A form name must always have the same type.
    /// The packed form replaces the tensor: pages of a file are released, and a folded tensor is dropped and recomputed
    /// if another program needs it in another form. Single numbers stay, because passes read them.
    pub fn prepared<T: Packed>(
        &self,
        known: &StaticTensor,
        form: &str,
        pack: impl FnOnce(&Tensor) -> Result<T, TensorError>,
    ) -> Result<Arc<T>, CompileError> {
        self.packed(known, form, |value| {
            let tensor = value.tensor()?;
            let packed = pack(&tensor)?;
            tensor.release();
            Ok(packed)
        })
    }

    /// The same for a form that is packed from rows of the tensor, which `pack` may read on several threads: nothing is joined or
    /// decoded as a whole.
    pub fn prepared_by_rows<T: Packed>(
        &self,
        known: &StaticTensor,
        form: &str,
        pack: impl FnOnce(&LazyTensor) -> Result<T, TensorError>,
    ) -> Result<Arc<T>, CompileError> {
        self.packed(known, form, |value| {
            let value = value.by_rows()?;
            let packed = pack(&value)?;
            value.release();
            Ok(packed)
        })
    }

    /// The packed form `form` of a tensor, which replaces it.
    fn packed<T: Packed>(
        &self,
        known: &StaticTensor,
        form: &str,
        pack: impl FnOnce(&LazyTensor) -> Result<T, TensorError>,
    ) -> Result<Arc<T>, CompileError> {
        let packed = self.form(known, form, |value| {
            let packed = pack(value)?;
            let memory = WeightMemory { packed: packed.bytes(), ..WeightMemory::default() };
            Ok((packed, memory))
        })?;
        if let Key::Named(name) = &known.key {
            let mut folded = locked(&self.weights.folded);
            if let Some(kept) = folded.get_mut(name).filter(|kept| kept.is_table()) {
                *kept = Folded::Packed;
            }
        }
        Ok(packed)
    }

    /// The unpacked tensor, contiguous, of type `dtype`. A tensor that is already in memory or mapped and not small is not
    /// copied; any other has one copy for all programs.
    pub fn plain(&self, known: &StaticTensor, dtype: DType) -> Result<Tensor, CompileError> {
        if known.is_readable_in_place() && known.dtype() == dtype {
            return known.in_place().map_err(|error| known.unreadable(error));
        }
        let plain = self.form(known, &format!("plain {dtype}"), |value| {
            let tensor = value.tensor()?;
            // A view would keep the whole source tensor alive.
            let plain =
                if tensor.dtype() == dtype { tensor.detached() } else { tensor.cast(dtype) }?;
            tensor.release();
            let memory = WeightMemory { plain: plain.ty().bytes(), ..WeightMemory::default() };
            Ok((plain, memory))
        })?;
        Ok((*plain).clone())
    }

    /// The form of a tensor: cached, or computed by `make`.
    fn form<T: Any + Send + Sync>(
        &self,
        known: &StaticTensor,
        form: &str,
        make: impl FnOnce(&LazyTensor) -> Result<(T, WeightMemory), TensorError>,
    ) -> Result<Arc<T>, CompileError> {
        let (device, tensor) = (self.device.to_owned(), known.key.clone());
        let key = FormKey { device, tensor, form: form.to_owned() };
        let found = locked(&self.weights.forms).get(&key).map(|found| Arc::clone(&found.form));
        if let Some(found) = found.and_then(|found| found.downcast().ok()) {
            return Ok(found);
        }
        let (made, memory) = make(&known.value).map_err(|error| known.unreadable(error))?;
        let made = Arc::new(made);
        let _unnamed = match known.key {
            Key::Named(_) => None,
            Key::Unnamed(_) => known.value.ready().cloned(),
        };
        let form = Form { form: made.clone(), memory, _unnamed };
        // Another device of the same kind may have made it meanwhile: one of the two is kept.
        let mut forms = locked(&self.weights.forms);
        let kept = forms.entry(key).or_insert(form);
        Ok(Arc::clone(&kept.form).downcast().unwrap_or(made))
    }
}

impl StaticTensor {
    /// The tensor's name, or its storage address if it has none. Unique among the same weights.
    pub fn name(&self) -> String {
        match &self.key {
            Key::Named(name) => name.to_string(),
            Key::Unnamed(place) => format!("{place:?}"),
        }
    }

    /// The type its elements are stored in.
    pub fn dtype(&self) -> DType {
        self.value.dtype()
    }

    /// The tensor, if some of its rows can be joined or decoded without the others.
    pub fn by_rows(&self) -> Option<&LazyTensor> {
        Some(&self.value).filter(|value| value.makes_rows())
    }

    /// The matrix whose values in 8 bits this is, under the same name; see [`LazyTensor::unquantized`].
    pub fn unquantized(&self) -> Option<StaticTensor> {
        let value = self.value.unquantized()?.clone();
        Some(StaticTensor { key: self.key.clone(), value })
    }

    /// Whether the tensor is in memory or in a mapped file, and not a small part of the latter.
    fn is_readable_in_place(&self) -> bool {
        let is_small = |tensor: &Tensor| tensor.is_mapped() && tensor.ty().bytes() <= MOST_COPIED;
        self.value.ready().is_some_and(|tensor| !is_small(tensor))
    }

    /// The tensor itself.
    pub fn tensor(&self) -> Result<Tensor, TensorError> {
        self.value.tensor()
    }

    /// The contiguous tensor, which is in memory or mapped. Kernels may read few of its rows, so the pages that only the
    /// search for NaN and infinity has touched are released.
    fn in_place(&self) -> Result<Tensor, TensorError> {
        let first_read = self.value.is_unchecked();
        let tensor = self.value.tensor()?.to_contiguous()?;
        if first_read {
            tensor.release();
        }
        Ok(tensor)
    }

    fn unreadable(&self, error: TensorError) -> CompileError {
        CompileError::Weight { path: self.name(), error }
    }
}

/// A panic while holding one of these locks leaves the map as it was: an entry is added whole or not at all.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
