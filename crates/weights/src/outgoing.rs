//! Tensors to be written to a file, and the tensors of a checkpoint that cannot be written.

use std::fmt;
use std::path::Path;

use cutout_tensor::{DType, Element, Shape, Tensor, TensorError, TensorType, memory};
use half::{bf16, f16};

use crate::checkpoint::Checkpoint;
use crate::error::{Problem, WeightsError};
use crate::gguf::write::Encoding;
use crate::stored::StoredType;

/// A tensor to be written. The writer loads it, writes it and drops it before the next one, so writing a file takes the
/// memory of its largest tensor.
pub struct OutgoingTensor<'a> {
    /// Name in the new file.
    pub name: String,
    /// Type and shape to write.
    pub ty: TensorType,
    /// Element type that `load` returns; [`OutgoingTensor::encoded`] may have set another one in `ty`.
    loads_as: DType,
    load: Box<dyn Fn() -> Result<Tensor, WeightsError> + 'a>,
}

impl<'a> OutgoingTensor<'a> {
    /// A tensor in memory.
    pub fn new(name: impl Into<String>, tensor: Tensor) -> Self {
        let ty = tensor.ty().clone();
        OutgoingTensor::deferred(name, ty, move || Ok(tensor.clone()))
    }

    /// A tensor of type `ty` that `load` returns when the writer needs it.
    pub fn deferred(
        name: impl Into<String>,
        ty: TensorType,
        load: impl Fn() -> Result<Tensor, WeightsError> + 'a,
    ) -> Self {
        OutgoingTensor { name: name.into(), loads_as: ty.dtype, ty, load: Box::new(load) }
    }

    /// Sets the element type that `encoding` gives this tensor. Integers keep their type. Quantised encodings are an
    /// error, because quantised blocks are not an element type; the GGUF writer produces them.
    pub fn encoded(mut self, encoding: Encoding) -> Result<Self, Problem> {
        if !self.ty.dtype.is_float() {
            return Ok(self);
        }
        match encoding.stored(&self.ty) {
            StoredType::Plain(dtype) => {
                self.ty.dtype = dtype;
                Ok(self)
            }
            stored @ (StoredType::F64 | StoredType::Block(_) | StoredType::Other { .. }) => {
                Err(Problem::Unsupported(format!("{stored} as an element type")))
            }
        }
    }

    /// Calls `tell` with the size of the tensor in memory, in bytes, each time it is loaded.
    pub fn observed(self, tell: impl Fn(u64) + 'a) -> Self {
        let OutgoingTensor { name, ty, loads_as, load } = self;
        let observed = move || {
            let tensor = load()?;
            tell(tensor.ty().bytes() as u64);
            Ok(tensor)
        };
        OutgoingTensor { name, ty, loads_as, load: Box::new(observed) }
    }

    /// Size of the loaded tensor, in bytes.
    pub fn loaded_bytes(&self) -> u64 {
        TensorType::new(self.loads_as, self.ty.shape.clone()).bytes() as u64
    }

    /// Loads the tensor, checks it against the declared type, and converts it to `ty`.
    pub(crate) fn load(&self, file: &Path) -> Result<Tensor, WeightsError> {
        let tensor = (self.load)()?;
        let declared = TensorType::new(self.loads_as, self.ty.shape.clone());
        if *tensor.ty() != declared {
            return Err(self.refuse(file, Problem::invalid("type", &declared, tensor.ty())));
        }
        convert(&tensor, self.ty.dtype).map_err(|problem| self.refuse(file, problem))
    }

    /// An error that names this tensor.
    pub(crate) fn refuse(&self, file: &Path, problem: impl Into<Problem>) -> WeightsError {
        refuse(file, &self.name, problem)
    }
}

/// An error that names a file and a tensor.
pub(crate) fn refuse(file: &Path, name: &str, problem: impl Into<Problem>) -> WeightsError {
    WeightsError::Tensor {
        file: file.display().to_string(),
        tensor: name.to_owned(),
        problem: problem.into(),
    }
}

/// A tensor of a checkpoint that cannot be written to another file.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// Name of the tensor.
    pub name: String,
    /// Shape of the tensor.
    pub shape: Shape,
    /// Why it cannot be written.
    pub problem: Problem,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.name, self.shape, self.problem)
    }
}

/// The tensors of a checkpoint: those to write, and those that cannot be written.
#[derive(Default)]
pub struct Outgoing<'a> {
    /// Tensors to write.
    pub tensors: Vec<OutgoingTensor<'a>>,
    /// Tensors that cannot be written.
    pub left_out: Vec<LeftOut>,
}

impl<'a> Outgoing<'a> {
    /// All tensors of a checkpoint, under their names in the file. NaN and infinity in one are an error when it is loaded.
    pub fn of(checkpoint: &'a Checkpoint) -> Self {
        let mut outgoing = Outgoing::default();
        // An error is reported when the tensor is loaded.
        let _ = checkpoint.inflate(checkpoint.tensors().iter().map(|info| info.name.as_str()));
        for info in checkpoint.tensors() {
            let load = || checkpoint.finite_tensor(&info.name);
            outgoing.add(&info.name, &info.stored, info.shape.clone(), load);
        }
        outgoing
    }

    /// Adds a tensor of type `stored` and this shape under `name`.
    pub(crate) fn add(
        &mut self,
        name: &str,
        stored: &StoredType,
        shape: Shape,
        load: impl Fn() -> Result<Tensor, WeightsError> + 'a,
    ) {
        match stored.loads_as() {
            Some(dtype) => {
                let ty = TensorType::new(dtype, shape);
                self.tensors.push(OutgoingTensor::deferred(name, ty, load));
            }
            None => {
                let problem = Problem::ElementType(stored.to_string());
                self.left_out.push(LeftOut { name: name.to_owned(), shape, problem });
            }
        }
    }
}

/// Converts a tensor to another element type. A number beyond its range is an error; it does not become infinity.
pub(crate) fn convert(tensor: &Tensor, dtype: DType) -> Result<Tensor, Problem> {
    let converted = tensor.cast(dtype)?;
    if tensor.dtype() == dtype {
        return Ok(converted);
    }
    match converted.first_not_finite()? {
        Some((element, _)) => {
            let value = tensor.to_f64_vec()?[element];
            Err(TensorError::Range { element, value, dtype }.into())
        }
        None => Ok(converted),
    }
}

/// Returns an error if two tensors have the same name.
pub(crate) fn refuse_duplicates<'n>(
    path: &Path,
    names: impl Iterator<Item = &'n str>,
) -> Result<(), WeightsError> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(refuse(path, pair[0], Problem::Duplicate(pair[0].to_owned()))),
        None => Ok(()),
    }
}

/// The elements of a tensor as little-endian bytes, in row-major order.
pub(crate) fn element_bytes(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
    // The crate compiles on little-endian machines only, so the bytes are copied as they are.
    fn copy<T: Element>(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
        match tensor.as_slice::<T>() {
            Ok(values) => Ok(memory::copied(bytemuck::cast_slice(values))?),
            Err(_) => Ok(memory::copied(bytemuck::cast_slice(&tensor.to_vec::<T>()?))?),
        }
    }
    match tensor.dtype() {
        DType::F32 => copy::<f32>(tensor),
        DType::F16 => copy::<f16>(tensor),
        DType::BF16 => copy::<bf16>(tensor),
        DType::I8 => copy::<i8>(tensor),
        DType::U8 => copy::<u8>(tensor),
        DType::I32 => copy::<i32>(tensor),
        DType::I64 => copy::<i64>(tensor),
        DType::Bool => copy::<bool>(tensor),
    }
}
