//! Values that live on a device, and the count of what crosses between device and host.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutout_tensor::{Tensor, TensorType};

use crate::RunError;

/// Storage of one tensor on a device. The memory of the CPU is a host [`Tensor`].
pub trait DeviceStorage: Any + Send + Sync {
    /// The elements in host memory.
    fn fetch(&self) -> Result<Tensor, RunError>;
}

impl DeviceStorage for Tensor {
    fn fetch(&self) -> Result<Tensor, RunError> {
        Ok(self.clone())
    }
}

/// A tensor that lives on a device. Programs take and return such values without moving them; [`DeviceValue::fetch`] is the
/// only way to the host. Cheap to clone.
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
