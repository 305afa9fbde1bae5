//! Memory of a card: allocations, the arena, copies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{Context, DeviceError, called, describe, locked};

/// Reserved addresses of which the first `mapped` bytes have memory. It grows and never moves, so captured launches stay valid.
#[derive(Default)]
pub(super) struct Arena {
    pub(super) base: u64,
    reserved: usize,
    mapped: usize,
    /// Mapped pieces: handle and bytes.
    pieces: Vec<(u64, usize)>,
}

impl Context {
    /// Bytes of memory that are free on the card.
    pub(crate) fn free_bytes(&self) -> usize {
        self.enter().ok().and_then(|()| result::mem_get_info().ok()).map_or(0, |(free, _)| free)
    }

    /// Bytes that can still be had: of the limit, if that is less than what is free on the card.
    pub(crate) fn available_bytes(&self) -> usize {
        self.free_bytes().min(self.limit.saturating_sub(self.used_bytes()))
    }

    /// Counts `bytes` more as used, unless they are beyond the limit.
    fn take(&self, bytes: usize) -> Result<(), DeviceError> {
        let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map_err(|_| DeviceError::OutOfMemory { bytes, free: self.available_bytes() })?;
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Memory of its own.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Memory, DeviceError> {
        self.enter()?;
        self.take(bytes)?;
        // SAFETY: the stream is this context's. The memory is freed once, on the same stream.
        let answer = unsafe { result::malloc_async(self.stream, bytes.max(16)) };
        let address = answer.map_err(|error| {
            self.give_back(bytes);
            self.allocation_error(bytes, error)
        })?;
        Ok(Memory { context: Arc::clone(self), address, bytes })
    }

    fn allocation_error(&self, bytes: usize, error: DriverError) -> DeviceError {
        if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return DeviceError::OutOfMemory { bytes, free: self.available_bytes() };
        }
        DeviceError::Failed { call: "allocating memory", message: describe(error) }
    }

    /// The address of the arena, of at least `bytes` bytes.
    pub(crate) fn arena(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.enter()?;
        let mut arena = locked(&self.arena);
        if arena.base == 0 {
            let reserved = self.card.memory.next_multiple_of(1 << 30);
            // SAFETY: reserves addresses only; they are freed when this value is dropped.
            let answer = unsafe { sys::cuMemAddressReserve(&mut arena.base, reserved, 0, 0, 0) };
            called("reserving addresses", answer.result())?;
            arena.reserved = reserved;
        }
        if bytes > arena.mapped {
            self.grow(&mut arena, bytes)?;
        }
        Ok(arena.base)
    }

    /// Maps memory behind what is mapped already.
    fn grow(&self, arena: &mut Arena, bytes: usize) -> Result<(), DeviceError> {
        // 2 MiB is the granularity of every card with these kernels; larger steps keep the number of pieces small.
        let step = if self.limit == usize::MAX { 32 << 20 } else { 2 << 20 };
        let more = (bytes - arena.mapped).next_multiple_of(step);
        if arena.mapped + more > arena.reserved {
            return Err(DeviceError::OutOfMemory { bytes: more, free: self.available_bytes() });
        }
        self.take(more)?;
        self.map(arena, more).inspect_err(|_| self.give_back(more))
    }

    fn map(&self, arena: &mut Arena, more: usize) -> Result<(), DeviceError> {
        let location = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        };
        // SAFETY: a structure of numbers and pointers, for which zero means "none".
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location;
        let mut handle = 0;
        // SAFETY: all arguments live through the call. The handle is released when this value is dropped.
        let answer = unsafe { sys::cuMemCreate(&mut handle, more, &properties, 0) };
        answer.result().map_err(|error| self.allocation_error(more, error))?;
        let start = arena.base + arena.mapped as u64;
        // SAFETY: the addresses are reserved and not mapped yet.
        let answer = unsafe { sys::cuMemMap(start, more, 0, handle, 0) };
        if let Err(error) = called("mapping memory", answer.result()) {
            // SAFETY: created above, and mapped nowhere.
            let _ = unsafe { sys::cuMemRelease(handle) };
            return Err(error);
        }
        arena.pieces.push((handle, more));
        arena.mapped += more;
        let access = sys::CUmemAccessDesc {
            location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range was just mapped.
        let answer = unsafe { sys::cuMemSetAccess(start, more, &access, 1) };
        called("opening memory", answer.result())
    }

    /// Bytes in use: allocations and the arena.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Fills a range with bytes of all ones, which is NaN in every float type.
    pub(crate) fn poison(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: callers pass ranges of memory that they hold.
        let answer = unsafe { result::memset_d8_async(address, 0xff, bytes, self.stream) };
        called("filling memory", answer)
    }

    /// Enqueues the filling of a range with zeros.
    pub(crate) fn clear(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: callers pass ranges of memory that they hold.
        let answer = unsafe { result::memset_d8_async(address, 0, bytes, self.stream) };
        called("clearing memory", answer)
    }

    /// Enqueues a copy between two ranges of this card.
    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: callers pass ranges of memory that they hold. Freeing is enqueued on the same stream, behind this copy.
        called("copying on the card", unsafe {
            result::memcpy_dtod_async(to, from, bytes, self.stream)
        })
    }

    pub(super) fn release_arena(&self) {
        let mut arena = locked(&self.arena);
        if arena.base == 0 {
            return;
        }
        if arena.mapped > 0 {
            // SAFETY: exactly what was mapped; the stream was synchronised, so nothing uses it.
            let _ = unsafe { sys::cuMemUnmap(arena.base, arena.mapped) };
        }
        for (handle, _) in arena.pieces.drain(..) {
            // SAFETY: created once, and unmapped above.
            let _ = unsafe { sys::cuMemRelease(handle) };
        }
        // SAFETY: reserved once, and nothing is mapped there any more.
        let _ = unsafe { sys::cuMemAddressFree(arena.base, arena.reserved) };
        arena.base = 0;
    }
}

/// Memory of a card. It is freed, behind all work enqueued before, when this value is dropped.
pub(crate) struct Memory {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Memory {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.give_back(self.bytes);
        if self.context.enter().is_ok() {
            // SAFETY: allocated once, and freed on the stream that all its users were enqueued on.
            let _ = unsafe { result::free_async(self.address, self.context.stream) };
        }
    }
}
