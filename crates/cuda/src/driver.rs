//! The driver: the only file that names cudarc, and the only one with `unsafe`.
//!
//! One [`Context`] is one card with one stream. Everything is enqueued on that stream, so memory that is freed or used again is
//! never touched by work that was enqueued earlier. The driver library is loaded when the first card is asked for.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use cutout_tensor::DType;

use crate::bundle;
use crate::launch::{Swizzle, TensorMap};
use crate::variants::Family;

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
        /// Bytes free at that moment.
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

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: a handle of the driver, whose functions may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: see `Send`.
unsafe impl Sync for Function {}

/// Functions by name, and the modules they are in.
#[derive(Default)]
struct Loaded {
    modules: HashMap<String, sys::CUmodule>,
    functions: HashMap<String, Function>,
}

/// One card, with one stream.
pub(crate) struct Context {
    card: Card,
    family: Family,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    capture_stream: sys::CUstream,
    loaded: Mutex<Loaded>,
    arena: Mutex<Arena>,
    /// Held while work of one run is enqueued: runs share the arena and must not be mixed.
    order: Mutex<()>,
}

// SAFETY: the driver's handles may be used from any thread; every call makes the context current first.
unsafe impl Send for Context {}
// SAFETY: see `Send`; what changes is behind locks.
unsafe impl Sync for Context {}

/// Reserved addresses of which the first `mapped` bytes have memory. It grows and never moves, so captured launches stay valid.
struct Arena {
    base: u64,
    reserved: usize,
    mapped: usize,
    /// Mapped pieces: handle and bytes.
    pieces: Vec<(u64, usize)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens a card.
    pub(crate) fn open(number: usize) -> Result<Arc<Context>, DeviceError> {
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
        let capture_stream = called("making a stream", result::stream::create(kind))?;
        let arena = Arena { base: 0, reserved: 0, mapped: 0, pieces: Vec::new() };
        let opened = Context {
            card,
            family,
            device,
            context,
            stream,
            capture_stream,
            loaded: Mutex::default(),
            arena: Mutex::new(arena),
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

    /// Bytes of memory that are free on the card.
    pub(crate) fn free_bytes(&self) -> usize {
        self.enter().ok().and_then(|()| result::mem_get_info().ok()).map_or(0, |(free, _)| free)
    }

    /// Memory of its own.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Memory, DeviceError> {
        self.enter()?;
        // SAFETY: the stream is this context's. The memory is freed once, on the same stream.
        let answer = unsafe { result::malloc_async(self.stream, bytes.max(16)) };
        let address = answer.map_err(|error| self.allocation_error(bytes, error))?;
        Ok(Memory { context: Arc::clone(self), address, bytes })
    }

    fn allocation_error(&self, bytes: usize, error: DriverError) -> DeviceError {
        if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return DeviceError::OutOfMemory { bytes, free: self.free_bytes() };
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
        let more = (bytes - arena.mapped).next_multiple_of(32 << 20);
        if arena.mapped + more > arena.reserved {
            return Err(DeviceError::OutOfMemory { bytes, free: self.free_bytes() });
        }
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
        called("mapping memory", answer.result())?;
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

    /// Bytes of the arena that have memory.
    pub(crate) fn arena_bytes(&self) -> usize {
        locked(&self.arena).mapped
    }

    /// Fills a range with bytes of all ones, which is NaN in every float type.
    pub(crate) fn poison(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: callers pass ranges of memory that they hold.
        let answer = unsafe { result::memset_d8_async(address, 0xff, bytes, self.stream) };
        called("filling memory", answer)
    }

    /// Copies host bytes to the device, and waits.
    pub(crate) fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: callers pass ranges of memory that they hold; `bytes` lives until the stream is synchronised below.
        called("copying to the card", unsafe {
            result::memcpy_htod_async(address, bytes, self.stream)
        })?;
        self.synchronize()
    }

    /// Copies bytes of the device to the host, and waits for everything enqueued before.
    pub(crate) fn copy_out(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        if !bytes.is_empty() {
            // SAFETY: as for `copy_in`.
            called("copying from the card", unsafe {
                result::memcpy_dtoh_async(bytes, address, self.stream)
            })?;
        }
        self.synchronize()
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

    /// Waits for everything that was enqueued.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream is this context's.
        called("running on the card", unsafe { result::stream::synchronize(self.stream) })
    }

    /// A kernel by name; its unit is loaded on first use.
    pub(crate) fn function(&self, name: &str) -> Result<Function, DeviceError> {
        let mut loaded = locked(&self.loaded);
        if let Some(&function) = loaded.functions.get(name) {
            return Ok(function);
        }
        self.enter()?;
        let missing = || DeviceError::NoKernel(name.to_owned());
        let unit = &bundle::manifest().kernels.get(name).ok_or_else(missing)?.unit;
        let module = match loaded.modules.get(unit) {
            Some(&module) => module,
            None => {
                let code = bundle::code(self.family, unit).ok_or_else(missing)?;
                // SAFETY: a whole cubin, or PTX that ends with zero; the driver copies it.
                let answer = unsafe { result::module::load_data(code.as_ptr().cast::<c_void>()) };
                let module = called("loading kernels", answer)?;
                loaded.modules.insert(unit.clone(), module);
                module
            }
        };
        let symbol = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the module is loaded until this value is dropped.
        let answer = unsafe { result::module::get_function(module, symbol) };
        let function = Function(called("finding a kernel", answer)?);
        self.allow_shared_memory(function)?;
        loaded.functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// Lets a kernel use as much dynamic shared memory as a block may have.
    fn allow_shared_memory(&self, function: Function) -> Result<(), DeviceError> {
        let most = c_int::try_from(self.card.shared_bytes).unwrap_or(0);
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the function was just loaded.
        let own = unsafe { result::function::get_function_attribute(function.0, which) };
        let own = called("reading a kernel's attribute", own)?;
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was just loaded.
        let answer =
            unsafe { result::function::set_function_attribute(function.0, which, most - own) };
        called("setting a kernel's shared memory", answer)
    }

    /// The 128 bytes of a tensor map over memory at `address`.
    pub(crate) fn encode(&self, map: &TensorMap, address: u64) -> Result<[u8; 128], DeviceError> {
        use sys::CUtensorMapDataType as Type;
        let element = match map.element {
            DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::BF16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::I8 | DType::U8 | DType::Bool => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            DType::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
            DType::I64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        };
        let swizzle = match map.swizzle {
            Swizzle::None => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::Bytes32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::Bytes64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::Bytes128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let steps = vec![1u32; map.dims.len()];
        // SAFETY: a structure of numbers.
        let mut encoded: sys::CUtensorMap = unsafe { std::mem::zeroed() };
        let rank = u32::try_from(map.dims.len()).unwrap_or(0);
        // SAFETY: `dims`, `box_dims` and `steps` have `rank` elements and `strides` one less (checked by lowering's tests and by the driver's
        // own checks of the rank); all live through the call, which only encodes.
        let answer = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut encoded,
                element,
                rank,
                address as *mut c_void,
                map.dims.as_ptr(),
                map.strides.as_ptr(),
                map.box_dims.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        called("encoding a tensor map", answer.result())?;
        // SAFETY: both types are 128 bytes of plain numbers.
        Ok(unsafe { std::mem::transmute::<sys::CUtensorMap, [u8; 128]>(encoded) })
    }

    /// Enqueues a launch.
    pub(crate) fn launch(&self, call: &Call) -> Result<(), DeviceError> {
        self.enter()?;
        self.launch_on(call, self.stream)
    }

    fn launch_on(&self, call: &Call, stream: sys::CUstream) -> Result<(), DeviceError> {
        let mut pointers: Vec<*mut c_void> = call
            .parameters
            .iter()
            .map(|parameter| parameter.as_ptr().cast_mut().cast::<c_void>())
            .collect();
        let [x, y, z] = call.grid;
        // SAFETY: the driver copies the parameters during the call. Their number and sizes are those of the kernel: lowering's tests
        // compare every launch with the manifest. Addresses are ranges of memory that the program holds.
        let answer = unsafe {
            result::launch_kernel(
                call.function.0,
                (x, y, z),
                (call.block, 1, 1),
                call.shared_bytes,
                stream,
                &mut pointers,
            )
        };
        called("launching a kernel", answer)
    }

    /// Captures launches into a graph.
    pub(crate) fn capture(self: &Arc<Self>, calls: &[Call]) -> Result<Replay, DeviceError> {
        self.enter()?;
        let stream = self.capture_stream;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this context's, and only used here, under the caller's lock.
        called("capturing", unsafe { result::stream::begin_capture(stream, mode) })?;
        let launched = calls.iter().try_for_each(|call| self.launch_on(call, stream));
        // SAFETY: the capture was begun above, and must be ended whatever happened.
        let graph = called("capturing", unsafe { result::stream::end_capture(stream) });
        launched?;
        let graph = graph?;
        // SAFETY: the graph was just captured.
        let answer = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: the graph is not used any more; what was instantiated is apart from it.
        let destroyed = unsafe { result::graph::destroy(graph) };
        let executable = called("building a graph", answer)?;
        called("building a graph", destroyed)?;
        Ok(Replay { context: Arc::clone(self), executable })
    }

    /// Enqueues a captured graph.
    pub(crate) fn replay(&self, replay: &Replay) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the graph lives as long as `replay`; its memory is held by the program that captured it.
        called("replaying a graph", unsafe {
            result::graph::launch(replay.executable, self.stream)
        })
    }

    /// Marks a moment on the stream.
    pub(crate) fn mark(self: &Arc<Self>) -> Result<Mark, DeviceError> {
        self.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = called("making an event", result::event::create(flags))?;
        let mark = Mark { _context: Arc::clone(self), event };
        // SAFETY: event and stream are this context's.
        called("recording an event", unsafe { result::event::record(event, self.stream) })?;
        Ok(mark)
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
        self.release_arena();
        for stream in [self.stream, self.capture_stream] {
            // SAFETY: nothing uses the stream any more.
            let _ = unsafe { result::stream::destroy(stream) };
        }
        // SAFETY: retained once, in `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl Context {
    fn release_arena(&self) {
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
        if self.context.enter().is_ok() {
            // SAFETY: allocated once, and freed on the stream that all its users were enqueued on.
            let _ = unsafe { result::free_async(self.address, self.context.stream) };
        }
    }
}

/// A launch with everything resolved.
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared_bytes: u32,
    /// The bytes of each parameter, aligned for any type.
    pub(crate) parameters: Vec<Parameter>,
}

/// Bytes of one parameter, aligned as tensor maps want it.
pub(crate) struct Parameter(Vec<Aligned>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Aligned([u8; 64]);

impl Parameter {
    pub(crate) fn new(bytes: &[u8]) -> Parameter {
        let pieces = bytes.chunks(64).map(|piece| {
            let mut aligned = Aligned([0; 64]);
            aligned.0[..piece.len()].copy_from_slice(piece);
            aligned
        });
        Parameter(pieces.collect())
    }

    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// A captured graph.
pub(crate) struct Replay {
    context: Arc<Context>,
    executable: sys::CUgraphExec,
}

// SAFETY: a handle of the driver, used under the context's lock.
unsafe impl Send for Replay {}
// SAFETY: see `Send`.
unsafe impl Sync for Replay {}

impl Drop for Replay {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            let _ = self.context.synchronize();
            // SAFETY: instantiated once; the stream was synchronised, so it is not running.
            let _ = unsafe { result::graph::exec_destroy(self.executable) };
        }
    }
}

/// A moment on the stream.
pub(crate) struct Mark {
    _context: Arc<Context>,
    event: sys::CUevent,
}

impl Mark {
    /// Time between two marks, when both have passed.
    pub(crate) fn since(&self, earlier: &Mark) -> Result<Duration, DeviceError> {
        // SAFETY: both events are recorded, and live through the call.
        let answer = unsafe { result::event::elapsed(earlier.event, self.event) };
        let milliseconds = called("reading an event", answer)?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = unsafe { result::event::destroy(self.event) };
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
