//! Opens the device of a profile. Only this module names a backend.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Device, MAX_THREADS, Profile};
use cutout_parallel::Pool;

mod check;

pub use check::{SelfCheck, self_check};
pub use cutout_cpu::Isa;

/// Why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A GPU: this version has no code for it.
    #[error("device cuda:{0}: this version of cutout runs on the processor only")]
    Cuda(usize),
    /// More threads than allowed.
    #[error("{0} threads are more than the {MAX_THREADS} allowed")]
    Threads(usize),
}

/// The device that a profile asks for, and the threads for work on the host. The CPU backend runs on the same threads.
pub(crate) fn open(profile: &Profile) -> Result<(Arc<dyn Backend>, Arc<Pool>), DeviceError> {
    let wanted = threads(profile);
    if wanted > MAX_THREADS {
        return Err(DeviceError::Threads(wanted));
    }
    match profile.device {
        Device::Auto | Device::Cpu => {
            let pool = Arc::new(Pool::new(wanted));
            Ok((Arc::new(Cpu::on(Arc::clone(&pool))), pool))
        }
        Device::Cuda(number) => Err(DeviceError::Cuda(number)),
    }
}

/// Number of threads of a profile; the number of cores unless set.
pub fn threads(profile: &Profile) -> usize {
    let cores = || {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        cores.min(MAX_THREADS)
    };
    profile.threads.map_or_else(cores, NonZeroUsize::get)
}

/// Every backend that this machine has, on `threads` threads each: tests of models run on all of them.
pub fn backends(threads: usize) -> Vec<Arc<dyn Backend>> {
    vec![Arc::new(Cpu::new(threads))]
}
