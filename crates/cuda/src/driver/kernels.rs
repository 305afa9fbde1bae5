//! Kernels of a card: loading, launching, capturing, timing.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result;
use cudarc::driver::sys;
use cutout_tensor::DType;

use super::{Context, DeviceError, called, locked};
use crate::bundle;
use crate::launch::{Swizzle, TensorMap};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: a handle of the driver, whose functions may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: see `Send`.
unsafe impl Sync for Function {}

/// Functions by name, and the modules they are in.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) modules: HashMap<String, sys::CUmodule>,
    functions: HashMap<String, Function>,
}

impl Context {
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
        let mut pointers = call.pointers();
        let [x, y, z] = call.grid;
        // SAFETY: the driver copies the parameters during the call. Their number and sizes are those of the kernel: lowering's tests
        // compare every launch with the manifest. Addresses are ranges of memory that the program holds.
        let answer = unsafe {
            result::launch_kernel(
                call.function.0,
                (x, y, z),
                (call.block, 1, 1),
                call.shared_bytes,
                self.stream,
                &mut pointers,
            )
        };
        called("launching a kernel", answer)
    }

    /// Launches as one graph; each waits for those of the same position in `dependencies`.
    pub(crate) fn graph(
        self: &Arc<Self>,
        calls: &[Call],
        dependencies: &[Vec<usize>],
    ) -> Result<Replay, DeviceError> {
        self.enter()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: `graph` lives through the call; it is destroyed below.
        called("making a graph", unsafe { sys::cuGraphCreate(&mut graph, 0) }.result())?;
        let filled = self.fill(graph, calls, dependencies);
        let executable = filled.and_then(|()| {
            // SAFETY: the graph was just made.
            let answer =
                unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
            called("building a graph", answer)
        });
        // SAFETY: the graph is not used any more; what was instantiated is apart from it.
        let destroyed = unsafe { result::graph::destroy(graph) };
        let executable = executable?;
        called("building a graph", destroyed)?;
        Ok(Replay { context: Arc::clone(self), executable })
    }

    fn fill(
        &self,
        graph: sys::CUgraph,
        calls: &[Call],
        dependencies: &[Vec<usize>],
    ) -> Result<(), DeviceError> {
        let mut nodes: Vec<sys::CUgraphNode> = Vec::with_capacity(calls.len());
        for (call, before) in calls.iter().zip(dependencies) {
            let before: Vec<sys::CUgraphNode> = before.iter().map(|&index| nodes[index]).collect();
            let mut pointers = call.pointers();
            let [x, y, z] = call.grid;
            let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
                func: call.function.0,
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: call.block,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: call.shared_bytes,
                kernelParams: pointers.as_mut_ptr(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: self.context,
            };
            let mut node = std::ptr::null_mut();
            // SAFETY: the driver copies the parameters during the call; for their number, sizes and addresses see `launch`. The nodes before
            // are of the same graph.
            let answer = unsafe {
                sys::cuGraphAddKernelNode_v2(
                    &mut node,
                    graph,
                    before.as_ptr(),
                    before.len(),
                    &parameters,
                )
            };
            called("adding to a graph", answer.result())?;
            nodes.push(node);
        }
        Ok(())
    }

    /// Enqueues a graph.
    pub(crate) fn replay(&self, replay: &Replay) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the graph lives as long as `replay`; its memory is held by the program that made it.
        called("replaying a graph", unsafe {
            result::graph::launch(replay.executable, self.stream)
        })
    }

    /// Marks a moment on the stream that times are measured between.
    pub(crate) fn timed_mark(self: &Arc<Self>) -> Result<Mark, DeviceError> {
        self.enter()?;
        let event = Event::new(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
        event.record(self)?;
        Ok(Mark { _context: Arc::clone(self), event })
    }

    /// Marks a moment on the stream that can be waited for.
    pub(crate) fn mark(self: &Arc<Self>) -> Result<Mark, DeviceError> {
        self.enter()?;
        Ok(Mark { _context: Arc::clone(self), event: self.event()? })
    }

    /// The same; the context is the current one and must outlive the event.
    pub(super) fn event(&self) -> Result<Event, DeviceError> {
        let event = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        event.record(self)?;
        Ok(event)
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

impl Call {
    fn pointers(&self) -> Vec<*mut c_void> {
        self.parameters.iter().map(|each| each.as_ptr().cast_mut().cast::<c_void>()).collect()
    }
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

/// A graph that can be enqueued.
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

/// An event of the driver. The context must outlive it.
pub(super) struct Event(sys::CUevent);

// SAFETY: a handle of the driver, whose functions may be called from any thread.
unsafe impl Send for Event {}
// SAFETY: see `Send`.
unsafe impl Sync for Event {}

impl Event {
    /// An event of the current context.
    fn new(flags: sys::CUevent_flags) -> Result<Event, DeviceError> {
        Ok(Event(called("making an event", result::event::create(flags))?))
    }

    fn record(&self, context: &Context) -> Result<(), DeviceError> {
        // SAFETY: event and stream are the context's.
        called("recording an event", unsafe { result::event::record(self.0, context.stream) })
    }

    /// Whether the stream is past it.
    pub(super) fn has_passed(&self) -> bool {
        // SAFETY: the event lives through the call.
        unsafe { sys::cuEventQuery(self.0) }.result().is_ok()
    }

    /// Waits until the stream is past it.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the event lives through the call.
        called("running on the card", unsafe { sys::cuEventSynchronize(self.0) }.result())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A moment on the stream.
pub(crate) struct Mark {
    event: Event,
    /// Dropped after the event.
    _context: Arc<Context>,
}

impl Mark {
    /// Waits until the stream is past it. The context is the current one.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        self.event.wait()
    }

    /// Time between two timed marks, when both have passed.
    pub(crate) fn since(&self, earlier: &Mark) -> Result<Duration, DeviceError> {
        // SAFETY: both events are recorded, and live through the call.
        let answer = unsafe { result::event::elapsed(earlier.event.0, self.event.0) };
        let milliseconds = called("reading an event", answer)?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }
}
