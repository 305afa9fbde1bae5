//! Tensors that are read or computed on request.

use std::fmt;
use std::sync::Arc;

use crate::{DType, Tensor, TensorError, TensorType};

/// A tensor of known type whose elements are read or computed on request. Either it holds a [`Tensor`], or a function
/// that joins or decodes its parts on every request. Computed tensors are not cached: the caller owns the result.
#[derive(Clone)]
pub struct LazyTensor {
    ty: TensorType,
    origin: Origin,
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
        LazyTensor { ty, origin: Origin::Computed(Arc::new(make)) }
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The tensor, if it exists already; `None` if it has to be computed.
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
        Ok(tensor)
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

impl From<Tensor> for LazyTensor {
    fn from(tensor: Tensor) -> Self {
        LazyTensor { ty: tensor.ty().clone(), origin: Origin::Ready(tensor) }
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
    fn a_result_of_another_type_than_declared_is_an_error() {
        let lazy = LazyTensor::new(TensorType::f32([3]), || Tensor::from_vec([2], vec![0.0f32; 2]));
        assert!(matches!(lazy.tensor(), Err(TensorError::Shape(_))));
    }
}
