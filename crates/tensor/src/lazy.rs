//! Tensors that are made when they are asked for.

use std::fmt;
use std::sync::Arc;

use crate::{DType, Tensor, TensorError, TensorType};

/// A tensor whose type is known and whose elements are had when somebody asks for them: at once where they lie ready, else by
/// joining or decoding what they are made of. What was made belongs to whoever asked, and nobody keeps it here.
#[derive(Clone)]
pub struct LazyTensor {
    ty: TensorType,
    origin: Origin,
}

type Make = dyn Fn() -> Result<Tensor, TensorError> + Send + Sync;

#[derive(Clone)]
enum Origin {
    Ready(Tensor),
    Made(Arc<Make>),
}

impl LazyTensor {
    /// A tensor of this type that `make` gives, each time it is asked for.
    pub fn new(
        ty: TensorType,
        make: impl Fn() -> Result<Tensor, TensorError> + Send + Sync + 'static,
    ) -> Self {
        LazyTensor { ty, origin: Origin::Made(Arc::new(make)) }
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The tensor, if it need not be made.
    pub fn ready(&self) -> Option<&Tensor> {
        match &self.origin {
            Origin::Ready(tensor) => Some(tensor),
            Origin::Made(_) => None,
        }
    }

    /// The tensor itself.
    pub fn tensor(&self) -> Result<Tensor, TensorError> {
        let tensor = match &self.origin {
            Origin::Ready(tensor) => tensor.clone(),
            Origin::Made(make) => make()?,
        };
        if *tensor.ty() != self.ty {
            return Err(TensorError::Shape(format!(
                "{} was announced as {}",
                tensor.ty(),
                self.ty
            )));
        }
        Ok(tensor)
    }

    /// What `change` makes of this tensor, each time it is asked for. Unless that is a view of it, this tensor is
    /// [released](Tensor::release).
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
            Origin::Made(_) => write!(f, "LazyTensor({})", self.ty),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_tensor_is_made_each_time_and_never_before() {
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
    fn another_type_than_was_announced_is_an_error() {
        let lazy = LazyTensor::new(TensorType::f32([3]), || Tensor::from_vec([2], vec![0.0f32; 2]));
        assert!(matches!(lazy.tensor(), Err(TensorError::Shape(_))));
    }
}
