//! Values that live on a device, and the count of what crosses between device and host.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutout_tensor::{Tensor, TensorError, TensorType};

use crate::RunError;

/// Storage of one tensor on a device. The memory of the CPU is a host [`Tensor`].
pub trait DeviceStorage: Any + Send + Sync {
    /// The elements in host memory.
    fn fetch(&self) -> Result<Tensor, RunError>;

    /// Elements of a range in row-major order, which lies inside the tensor, as a tensor of one axis. A device that is not the host
    /// moves only these.
    fn fetch_range(&self, elements: Range<usize>) -> Result<Tensor, RunError> {
        let whole = self.fetch()?.to_contiguous()?;
        let length = whole.shape().elements();
        Ok(whole.reshape([length])?.slice(0, elements)?)
    }
}

impl DeviceStorage for Tensor {
    fn fetch(&self) -> Result<Tensor, RunError> {
        Ok(self.clone())
    }
}

/// A tensor that lives on a device. Programs take and return such values without moving them; [`DeviceValue::fetch`] and
/// [`DeviceValue::fetch_range`] are the only ways to the host. Cheap to clone.
#[derive(Clone)]
pub struct DeviceValue {
    ty: TensorType,
    storage: Arc<dyn DeviceStorage>,
    transfers: Arc<Transfers>,
}

impl DeviceValue {
    /// A value that a backend made. `transfers` counts its fetches.
    pub fn new(
        ty: TensorType,
        storage: Arc<dyn DeviceStorage>,
        transfers: Arc<Transfers>,
    ) -> DeviceValue {
        DeviceValue { ty, storage, transfers }
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The elements in host memory. On the CPU this copies nothing; it is counted on every device.
    pub fn fetch(&self) -> Result<Tensor, RunError> {
        self.transfers.count_fetch(self.ty.bytes());
        self.storage.fetch()
    }

    /// Elements of a range in row-major order, as a tensor of one axis: the rest is not moved, and not counted. On the CPU the
    /// result is a view.
    pub fn fetch_range(&self, elements: Range<usize>) -> Result<Tensor, RunError> {
        let length = self.ty.shape.elements();
        if elements.start > elements.end || elements.end > length {
            let message = format!("elements {elements:?} are outside {}", self.ty);
            return Err(TensorError::Shape(message).into());
        }
        self.transfers.count_fetch(elements.len() * self.ty.dtype.size());
        self.storage.fetch_range(elements)
    }

    /// The storage, if it is of the kind that a backend keeps.
    pub fn storage<T: DeviceStorage>(&self) -> Option<&T> {
        (&*self.storage as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for DeviceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceValue({})", self.ty)
    }
}

/// How often, and how many bytes, values went from the host to a device and back.
#[derive(Debug, Default)]
pub struct Transfers {
    fetches: AtomicU64,
    fetched_bytes: AtomicU64,
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
}

/// The transfers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Values that were fetched to the host.
    pub fetches: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Tensors that were uploaded to the device.
    pub uploads: u64,
    /// Their bytes.
    pub uploaded_bytes: u64,
}

impl Transfers {
    /// Counts one upload.
    pub fn count_upload(&self, bytes: usize) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.uploaded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn count_fetch(&self, bytes: usize) {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        self.fetched_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The transfers so far.
    pub fn counts(&self) -> TransferCounts {
        TransferCounts {
            fetches: self.fetches.load(Ordering::Relaxed),
            fetched_bytes: self.fetched_bytes.load(Ordering::Relaxed),
            uploads: self.uploads.load(Ordering::Relaxed),
            uploaded_bytes: self.uploaded_bytes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_counted_with_its_own_bytes() {
        let tensor = Tensor::from_vec([2, 3], vec![0i64, 1, 2, 3, 4, 5]).expect("six elements");
        let turned = tensor.permute(&[1, 0]).expect("two axes");
        let transfers = Arc::new(Transfers::default());
        let value = DeviceValue::new(turned.ty().clone(), Arc::new(turned), Arc::clone(&transfers));
        let range = value.fetch_range(1..4).expect("a range inside");
        assert_eq!(range.to_vec::<i64>().expect("whole numbers"), [3, 1, 4]);
        let empty = value.fetch_range(6..6).expect("an empty range");
        assert_eq!(empty.shape().elements(), 0);
        let counts = transfers.counts();
        assert_eq!((counts.fetches, counts.fetched_bytes), (2, 24));
        for outside in [5..7, 7..7] {
            assert!(value.fetch_range(outside).is_err());
        }
        assert_eq!(transfers.counts(), counts, "what fails moves nothing");
    }
}
