//! Tensors that are read or computed on request.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::{DType, Tensor, TensorError, TensorType};

/// A tensor of known type whose elements are read or computed on request. Either it holds a [`Tensor`], or a function
/// that joins or decodes its parts on every request. Computed tensors are not cached: the caller owns the result.
#[derive(Clone)]
pub struct LazyTensor {
    ty: TensorType,
    origin: Origin,
    check: Option<Arc<Check>>,
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
}

impl LazyTensor {
    /// A tensor of type `ty` that `make` computes on every request.
    pub fn new(
        ty: TensorType,
        make: impl Fn() -> Result<Tensor, TensorError> + Send + Sync + 'static,
    ) -> Self {
        LazyTensor { ty, origin: Origin::Computed(Arc::new(make)), check: None }
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
            Origin::Computed(_) => None,
        }
    }

    /// The tensor, computed if necessary.
    pub fn tensor(&self) -> Result<Tensor, TensorError> {
        let tensor = match &self.origin {
            Origin::Ready(tensor) => tensor.clone(),
            Origin::Computed(make) => make()?,
        };
        if *tensor.ty() != self.ty {
            return Err(TensorError::Shape(format!(
                "a tensor declared as {} was computed as {}",
                self.ty,
                tensor.ty()
            )));
        }
        if let Some(check) = &self.check {
            check.outcome.get_or_init(|| check.run(&tensor)).clone()?;
        }
        Ok(tensor)
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

impl Check {
    fn run(&self, tensor: &Tensor) -> Result<(), TensorError> {
        match tensor.first_not_finite()? {
            Some((element, value)) => {
                Err(TensorError::Weight { name: Arc::clone(&self.name), element, value })
            }
            None => Ok(()),
        }
    }
}

impl From<Tensor> for LazyTensor {
    fn from(tensor: Tensor) -> Self {
        LazyTensor { ty: tensor.ty().clone(), origin: Origin::Ready(tensor), check: None }
    }
}

impl fmt::Debug for LazyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Ready(tensor) => tensor.fmt(f),
            Origin::Computed(_) => write!(f, "LazyTensor({})", self.ty),
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
