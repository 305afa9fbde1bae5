//! The driver: the only module that names cudarc, and the only one with `unsafe`.
//!
//! One [`Context`] is one card with one stream. Everything is enqueued on that stream, so memory that is freed or used again is
//! never touched by work that was enqueued earlier. Only copies to the host have a stream of their own: they run beside work that was enqueued
//! after what they copy, and are waited for. The driver library is loaded when the first card is asked for.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::variants::Family;

mod kernels;
mod memory;
mod staging;

pub(crate) use kernels::{Call, Mark, Parameter, Replay};
pub(crate) use memory::Memory;

use kernels::Loaded;
use memory::Arena;
use staging::Staging;

/// Oldest driver that the kernels run on, as CUDA numbers it: 12.0, driver 525.
const OLDEST_DRIVER: i32 = 12000;

/// Oldest compute capability with kernels.
const OLDEST_CAPABILITY: (i32, i32) = (8, 0);

/// Bytes of freed memory that the driver keeps for the next allocation.
const POOL_BYTES: u64 = 512 << 20;

/// Why a card cannot be used, or why work on it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver library.
    #[error("no NVIDIA driver is installed")]
    NoDriver,
    /// The driver cannot start.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(String),
    /// The driver is too old.
    #[error("the NVIDIA driver supports CUDA {}.{}, 12.0 (driver 525) is needed", .0 / 1000, .0 % 1000 / 10)]
    DriverTooOld(i32),
    /// There is no card of this number.
    #[error("there is no card {number}; the driver sees {count}")]
    NoSuchCard {
        /// The number asked for.
        number: usize,
        /// Cards there are.
        count: usize,
    },
    /// The card is too old.
    #[error("{name} has compute capability {}.{}, 8.0 is needed", capability.0, capability.1)]
    CardTooOld {
        /// Name of the card.
        name: String,
        /// Its compute capability.
        capability: (i32, i32),
    },
    /// An allocation failed.
    #[error("{bytes} bytes of GPU memory could not be allocated ({free} bytes are free)")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free at that moment: on the card, or of the limit.
        free: usize,
    },
    /// The bundle has no such kernel for this card.
    #[error("the bundle has no kernel {0} for this card")]
    NoKernel(String),
    /// A call failed: the card is lost, or a kernel did something wrong. The context cannot be used any more.
    #[error("{call}: {message}")]
    Failed {
        /// What was called.
        call: &'static str,
        /// What the driver says.
        message: String,
    },
}

/// A card of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number, as in `cuda:N`.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub memory: usize,
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Shared memory that a block may have, in bytes.
    pub shared_bytes: usize,
}

impl Card {
    /// The kernels that run on it; `None` if it is too old.
    pub fn family(&self) -> Option<Family> {
        match self.capability {
            (9, 0) => Some(Family::Sm90a),
            (8, _) => Some(Family::Sm80),
            capability if capability < OLDEST_CAPABILITY => None,
            _ => Some(Family::Ptx80),
        }
    }
}

/// Turns a driver's answer into an error that names the call.
fn called<T>(call: &'static str, answer: Result<T, DriverError>) -> Result<T, DeviceError> {
    answer.map_err(|error| DeviceError::Failed { call, message: describe(error) })
}

fn describe(error: DriverError) -> String {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok());
    text.map_or_else(|| format!("{:?}", error.0), str::to_owned)
}

/// Loads the driver and checks its version. Never panics where there is none.
fn start() -> Result<(), DeviceError> {
    // SAFETY: only tries to open the library, whose initialisers touch nothing of this program.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    result::init().map_err(|error| DeviceError::Start(describe(error)))?;
    let mut version: c_int = 0;
    // SAFETY: `version` lives through the call.
    let answer = unsafe { sys::cuDriverGetVersion(&mut version) };
    called("reading the driver's version", answer.result())?;
    if version < OLDEST_DRIVER { Err(DeviceError::DriverTooOld(version)) } else { Ok(()) }
}

/// The cards of this machine.
pub fn cards() -> Result<Vec<Card>, DeviceError> {
    start()?;
    let count = called("counting cards", result::device::get_count())?;
    (0..count).map(|number| card(number).map(|(_, card)| card)).collect()
}

fn card(number: c_int) -> Result<(sys::CUdevice, Card), DeviceError> {
    let device = called("opening a card", result::device::get(number))?;
    let attribute = |which| {
        // SAFETY: the device was just given by the driver.
        called("reading a card's attribute", unsafe {
            result::device::get_attribute(device, which)
        })
    };
    use sys::CUdevice_attribute_enum as Attribute;
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let shared = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    // SAFETY: the device was just given by the driver.
    let memory = unsafe { result::device::total_mem(device) };
    let card = Card {
        number: usize::try_from(number).unwrap_or(0),
        name: called("reading a card's name", result::device::get_name(device))?,
        capability: (major, minor),
        memory: called("reading a card's memory", memory)?,
        multiprocessors: usize::try_from(multiprocessors).unwrap_or(1),
        shared_bytes: usize::try_from(shared).unwrap_or(0),
    };
    Ok((device, card))
}

/// One card, with one stream.
pub(crate) struct Context {
    card: Card,
    family: Family,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// For copies to the host.
    fetches: sys::CUstream,
    staging: Staging,
    loaded: Mutex<Loaded>,
    arena: Mutex<Arena>,
    /// Bytes of memory that may be used, and that are used: allocations and the arena.
    limit: usize,
    used: AtomicUsize,
    /// Number of the program that used the arena last.
    arena_user: AtomicU64,
    /// Held while work of one run is enqueued: runs share the arena and must not be mixed.
    order: Mutex<()>,
}

// SAFETY: the driver's handles may be used from any thread; every call makes the context current first.
unsafe impl Send for Context {}
// SAFETY: see `Send`; what changes is behind locks.
unsafe impl Sync for Context {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens a card, of whose memory at most `limit` bytes are used.
    pub(crate) fn open(number: usize, limit: usize) -> Result<Arc<Context>, DeviceError> {
        start()?;
        let count = called("counting cards", result::device::get_count())?;
        let count = usize::try_from(count).unwrap_or(0);
        let index = c_int::try_from(number).ok().filter(|_| number < count);
        let index = index.ok_or(DeviceError::NoSuchCard { number, count })?;
        let (device, card) = card(index)?;
        let Some(family) = card.family() else {
            let Card { name, capability, .. } = card;
            return Err(DeviceError::CardTooOld { name, capability });
        };
        // SAFETY: the device was just given by the driver; the context is released when this value is dropped.
        let context = called("making a context", unsafe { result::primary_ctx::retain(device) })?;
        // SAFETY: the context was just made.
        called("using a context", unsafe { result::ctx::set_current(context) })?;
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = called("making a stream", result::stream::create(kind))?;
        let kind = result::stream::StreamKind::NonBlocking;
        let fetches = called("making a stream", result::stream::create(kind))?;
        let opened = Context {
            card,
            family,
            device,
            context,
            stream,
            fetches,
            staging: Staging::default(),
            loaded: Mutex::default(),
            arena: Mutex::default(),
            limit,
            used: AtomicUsize::new(0),
            arena_user: AtomicU64::new(0),
            order: Mutex::new(()),
        };
        opened.keep_freed_memory()?;
        Ok(Arc::new(opened))
    }

    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Keeps others from enqueueing until the guard is dropped.
    pub(crate) fn ordered(&self) -> MutexGuard<'_, ()> {
        locked(&self.order)
    }

    /// Makes a program the user of the arena, and returns the one before. Callers hold [`Context::ordered`].
    pub(crate) fn arena_user(&self, program: u64) -> u64 {
        self.arena_user.swap(program, Ordering::Relaxed)
    }

    /// Makes this context the current one of the calling thread.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until this value is dropped.
        called("using the context", unsafe { result::ctx::set_current(self.context) })
    }

    /// Freed memory stays with the driver's pool up to a limit, so that outputs of the next run cost nothing.
    fn keep_freed_memory(&self) -> Result<(), DeviceError> {
        // SAFETY: the device is this context's.
        let pool = unsafe { result::device::get_default_mem_pool(self.device) };
        let pool = called("finding the memory pool", pool)?;
        let mut bytes = POOL_BYTES;
        let which = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool is the device's own; the attribute is a 64-bit number, which `bytes` is.
        let answer =
            unsafe { sys::cuMemPoolSetAttribute(pool, which, (&raw mut bytes).cast::<c_void>()) };
        called("setting up the memory pool", answer.result())
    }

    /// Gives freed memory back to the card. Other backends of this process may still have the context.
    fn release_pool(&self) {
        // SAFETY: the device is this context's.
        if let Ok(pool) = unsafe { result::device::get_default_mem_pool(self.device) } {
            // SAFETY: the pool is the device's own; memory that is in use stays.
            let _ = unsafe { sys::cuMemPoolTrimTo(pool, 0) };
        }
    }

    /// Waits for everything that was enqueued.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream is this context's.
        called("running on the card", unsafe { result::stream::synchronize(self.stream) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        let _ = self.synchronize();
        let loaded = std::mem::take(&mut *locked(&self.loaded));
        for module in loaded.modules.into_values() {
            // SAFETY: nothing uses the module's functions any more: programs hold this context.
            let _ = unsafe { result::module::unload(module) };
        }
        self.staging.release();
        self.release_arena();
        self.release_pool();
        for stream in [self.stream, self.fetches] {
            // SAFETY: nothing uses the stream any more: copies to the host are waited for where they are made.
            let _ = unsafe { result::stream::destroy(stream) };
        }
        // SAFETY: retained once, in `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_their_family() {
        let card = |capability| Card {
            number: 0,
            name: "card".to_owned(),
            capability,
            memory: 0,
            multiprocessors: 1,
            shared_bytes: 0,
        };
        assert_eq!(card((7, 5)).family(), None);
        assert_eq!(card((8, 0)).family(), Some(Family::Sm80));
        assert_eq!(card((8, 9)).family(), Some(Family::Sm80));
        assert_eq!(card((9, 0)).family(), Some(Family::Sm90a));
        assert_eq!(card((10, 0)).family(), Some(Family::Ptx80));
        assert_eq!(card((12, 0)).family(), Some(Family::Ptx80));
    }

    #[test]
    fn a_machine_without_a_driver_gets_an_error() {
        match cards() {
            Ok(cards) => assert!(cards.iter().all(|card| !card.name.is_empty())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
