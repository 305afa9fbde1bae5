//! Tensors that are read or computed on request.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::{DType, QuantizedMatrix, Scales, Tensor, TensorError, TensorType};

/// A tensor of known type whose elements are read or computed on request. Either it holds a [`Tensor`], or a function
/// that joins or decodes its parts on every request. Computed tensors are not cached: the caller owns the result.
#[derive(Clone)]
pub struct LazyTensor {
    ty: TensorType,
    origin: Origin,
    check: Option<Arc<Check>>,
    /// The matrix of which these are the [quantised](LazyTensor::quantized) values.
    unquantized: Option<Arc<LazyTensor>>,
}

/// Rows of a tensor (elements of its first axis) that are joined or decoded on request, by several threads at a time.
pub trait Rows: Send + Sync {
    /// These rows.
    fn rows(&self, range: Range<usize>) -> Result<Tensor, TensorError>;

    /// Hints that the rows are unlikely to be read again; see [`Bytes::release`](crate::Bytes::release).
    fn release(&self);
}

/// The check of a tensor for NaN and infinity, shared by all clones.
struct Check {
    /// Name in the error.
    name: Arc<str>,
    outcome: OnceLock<Result<(), TensorError>>,
}

type Compute = dyn Fn() -> Result<Tensor, TensorError> + Send + Sync;

#[derive(Clone)]
enum Origin {
    Ready(Tensor),
    Computed(Arc<Compute>),
    Rows(Arc<dyn Rows>),
}

impl LazyTensor {
    /// A tensor of type `ty` that `make` computes on every request.
    pub fn new(
        ty: TensorType,
        make: impl Fn() -> Result<Tensor, TensorError> + Send + Sync + 'static,
    ) -> Self {
        LazyTensor::of(ty, Origin::Computed(Arc::new(make)))
    }

    /// A tensor of type `ty`, of which any rows are computed on request.
    pub fn from_rows(ty: TensorType, rows: impl Rows + 'static) -> Self {
        LazyTensor::of(ty, Origin::Rows(Arc::new(rows)))
    }

    fn of(ty: TensorType, origin: Origin) -> Self {
        LazyTensor { ty, origin, check: None, unquantized: None }
    }

    /// The same tensor, searched for NaN and infinity when it is first read: [`LazyTensor::tensor`] then returns an error
    /// with `name`. Clones and [mapped](LazyTensor::map) tensors share the result, so a tensor is searched once.
    pub fn checked(self, name: impl Into<Arc<str>>) -> Self {
        let check = Check { name: name.into(), outcome: OnceLock::new() };
        LazyTensor { check: Some(Arc::new(check)), ..self }
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The tensor, if it exists already, without the [check](LazyTensor::checked) of its numbers; `None` if it has to be
    /// computed.
    pub fn ready(&self) -> Option<&Tensor> {
        match &self.origin {
            Origin::Ready(tensor) => Some(tensor),
            Origin::Computed(_) | Origin::Rows(_) => None,
        }
    }

    /// The tensor, computed if necessary.
    pub fn tensor(&self) -> Result<Tensor, TensorError> {
        let tensor = match &self.origin {
            Origin::Ready(tensor) => tensor.clone(),
            Origin::Computed(make) => make()?,
            Origin::Rows(rows) => {
                let tensor = rows.rows(0..self.row_count())?;
                rows.release();
                tensor
            }
        };
        expect(&self.ty, &tensor)?;
        if let Some(check) = &self.check {
            check.outcome.get_or_init(|| check.run(&tensor, 0)).clone()?;
        }
        Ok(tensor)
    }

    /// Length of the first axis.
    fn row_count(&self) -> usize {
        self.ty.shape.first().copied().unwrap_or(1)
    }

    /// Whether some [rows](LazyTensor::rows) are joined or decoded without the others.
    pub fn makes_rows(&self) -> bool {
        matches!(self.origin, Origin::Rows(_))
    }

    /// The same tensor, of which [rows](LazyTensor::rows) are read without computing the others: itself, or the computed tensor.
    pub fn by_rows(&self) -> Result<LazyTensor, TensorError> {
        match &self.origin {
            Origin::Ready(_) | Origin::Rows(_) => Ok(self.clone()),
            Origin::Computed(_) => Ok(self.tensor()?.into()),
        }
    }

    /// Some rows (elements of the first axis), searched as the whole would be. Nothing is [released](LazyTensor::release).
    pub fn rows(&self, range: Range<usize>) -> Result<Tensor, TensorError> {
        let is_whole = range.len() == self.row_count();
        let mut ty = self.ty.clone();
        let Some(count) = ty.shape.first_mut() else {
            return Err(TensorError::Shape(format!("{} has no rows", self.ty)));
        };
        *count = range.len();
        let first = range.start * ty.shape.iter().skip(1).product::<usize>();
        let rows = match &self.origin {
            Origin::Ready(tensor) => tensor.slice(0, range)?,
            Origin::Computed(make) => make()?.slice(0, range)?,
            Origin::Rows(rows) => rows.rows(range)?,
        };
        expect(&ty, &rows)?;
        match &self.check {
            Some(check) if is_whole => {
                check.outcome.get_or_init(|| check.run(&rows, 0)).clone()?;
            }
            Some(check) if check.outcome.get() != Some(&Ok(())) => check.run(&rows, first)?,
            Some(_) | None => {}
        }
        Ok(rows)
    }

    /// Hints that the tensor is unlikely to be read again; see [`Bytes::release`](crate::Bytes::release).
    pub fn release(&self) {
        match &self.origin {
            Origin::Ready(tensor) => tensor.release(),
            Origin::Computed(_) => {}
            Origin::Rows(rows) => rows.release(),
        }
    }

    /// A matrix in 8 bits with one scale per row: its values `i8[rows, columns]` and its scales `f32[rows, 1]`, quantised when
    /// they are read. Who has read the values gets the scales from the same reading.
    pub fn quantized(self) -> [LazyTensor; 2] {
        let types = [
            TensorType::new(DType::I8, self.ty.shape.clone()),
            TensorType::f32([self.row_count(), 1]),
        ];
        let source = Arc::new(self);
        let known: Arc<OnceLock<Tensor>> = Arc::default();
        let (matrix, scales) = (Arc::clone(&source), Arc::clone(&known));
        let [values_ty, scales_ty] = types;
        let values = LazyTensor::new(values_ty, move || {
            let matrix = matrix.read(|matrix| QuantizedMatrix::quantize(matrix, Scales::PerRow))?;
            scales.get_or_init(|| matrix.scales);
            Ok(matrix.values)
        });
        let matrix = Arc::clone(&source);
        let scales = LazyTensor::new(scales_ty, move || match known.get() {
            Some(scales) => Ok(scales.clone()),
            None => matrix.read(|matrix| QuantizedMatrix::scales(matrix, Scales::PerRow)),
        });
        [LazyTensor { unquantized: Some(source), ..values }, scales]
    }

    /// The matrix whose values these are, if they are those of [`LazyTensor::quantized`].
    pub fn unquantized(&self) -> Option<&LazyTensor> {
        self.unquantized.as_deref()
    }

    /// Reads the tensor as `f32` and releases what it was read from.
    fn read<T>(
        &self,
        read: impl FnOnce(&Tensor) -> Result<T, TensorError>,
    ) -> Result<T, TensorError> {
        let tensor = self.tensor()?;
        let result = read(&tensor.cast(DType::F32)?)?;
        tensor.release();
        Ok(result)
    }

    /// Whether [`LazyTensor::tensor`] would still have to search the numbers.
    pub fn is_unchecked(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.outcome.get().is_none())
    }

    /// `change` applied to this tensor on every request. Afterwards the original is [released](Tensor::release), unless
    /// the result is a view of it.
    pub fn map(
        self,
        ty: TensorType,
        change: impl Fn(&Tensor) -> Result<Tensor, TensorError> + Send + Sync + 'static,
    ) -> Self {
        LazyTensor::new(ty, move || {
            let tensor = self.tensor()?;
            let changed = change(&tensor)?;
            if !changed.shares_memory(&tensor) {
                tensor.release();
            }
            Ok(changed)
        })
    }
}

/// An error if a tensor has another type than declared.
fn expect(declared: &TensorType, tensor: &Tensor) -> Result<(), TensorError> {
    if tensor.ty() == declared {
        return Ok(());
    }
    let found = tensor.ty();
    Err(TensorError::Shape(format!("a tensor declared as {declared} was computed as {found}")))
}

impl Check {
    /// Searches a tensor, or rows of one before which there are `first` elements.
    fn run(&self, tensor: &Tensor, first: usize) -> Result<(), TensorError> {
        match tensor.first_not_finite()? {
            Some((element, value)) => {
                let element = first + element;
                Err(TensorError::Weight { name: Arc::clone(&self.name), element, value })
            }
            None => Ok(()),
        }
    }
}

impl From<Tensor> for LazyTensor {
    fn from(tensor: Tensor) -> Self {
        LazyTensor::of(tensor.ty().clone(), Origin::Ready(tensor))
    }
}

impl fmt::Debug for LazyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Ready(tensor) => tensor.fmt(f),
            Origin::Computed(_) | Origin::Rows(_) => write!(f, "LazyTensor({})", self.ty),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_tensor_is_computed_on_each_request_and_not_before() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let lazy = LazyTensor::new(TensorType::f32([2]), move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Tensor::from_vec([2], vec![1.0f32, 2.0])
        });
        let first = lazy.clone().map(TensorType::f32([1]), |whole| whole.slice(0, 0..1));
        assert_eq!(made.load(Ordering::Relaxed), 0);
        assert_eq!(lazy.tensor().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(first.tensor().unwrap().to_vec::<f32>().unwrap(), [1.0]);
        assert_eq!(made.load(Ordering::Relaxed), 2);
        assert!(lazy.ready().is_none());
    }

    #[test]
    fn checked_tensors_are_searched_once_and_named() {
        let good = LazyTensor::from(Tensor::from_vec([1], vec![1.0f32]).unwrap()).checked("good");
        assert!(good.clone().is_unchecked());
        assert!(good.clone().tensor().is_ok());
        assert!(!good.is_unchecked());
        let bad = Tensor::from_vec([2], vec![1.0, f32::NAN]).unwrap();
        let bad = LazyTensor::from(bad).checked("file: tensor bad");
        let first = bad.clone().map(TensorType::f32([1]), |whole| whole.slice(0, 0..1));
        let message = "file: tensor bad: element 1 is NaN; the numbers of a weight must be finite";
        assert_eq!(first.tensor().unwrap_err().to_string(), message, "the whole is checked");
        assert!(bad.tensor().is_err() && bad.ready().is_some());
    }

    #[test]
    fn a_result_of_another_type_than_declared_is_an_error() {
        let lazy = LazyTensor::new(TensorType::f32([3]), || Tensor::from_vec([2], vec![0.0f32; 2]));
        assert!(matches!(lazy.tensor(), Err(TensorError::Shape(_))));
    }
}
