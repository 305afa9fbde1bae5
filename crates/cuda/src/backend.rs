//! A card as a backend.

use std::sync::Arc;

use cutout_graph::plan::Rules;
use cutout_graph::{
    Backend, CompileError, DeviceValue, Planned, Profile, Program, RunError, Transfers,
};
use cutout_tensor::{DType, Shape, Tensor, TensorError, TensorType};

use crate::driver::{Card, Context, DeviceError};
use crate::lower::{Target, lower};
use crate::program::{CudaProgram, Machine, run_error};
use crate::rules::CudaRules;

/// Pictures or objects that one run takes together.
const BATCH_LIMIT: usize = 16;

/// An NVIDIA GPU.
pub struct Cuda {
    machine: Arc<Machine>,
    device: String,
}

impl Cuda {
    /// Opens the card of this number.
    pub fn open(number: usize) -> Result<Cuda, DeviceError> {
        Cuda::opened(number, usize::MAX, false)
    }

    /// Opens the card of this number, of whose memory at most `limit` bytes are used.
    pub fn open_limited(number: usize, limit: usize) -> Result<Cuda, DeviceError> {
        Cuda::opened(number, limit, false)
    }

    /// For tests: temporary memory and outputs are filled with NaN before each run.
    pub fn open_poisoned(number: usize) -> Result<Cuda, DeviceError> {
        Cuda::opened(number, usize::MAX, true)
    }

    fn opened(number: usize, limit: usize, poison: bool) -> Result<Cuda, DeviceError> {
        let context = Context::open(number, limit)?;
        let machine = Machine { context, transfers: Arc::default(), poison };
        Ok(Cuda { machine: Arc::new(machine), device: format!("cuda:{number}") })
    }

    /// The card.
    pub fn card(&self) -> &Card {
        self.machine.context.card()
    }

    /// Bytes of memory that are free on the card now.
    pub fn free_bytes(&self) -> usize {
        self.machine.context.free_bytes()
    }

    /// Bytes of memory that this backend uses: values, weights, temporary memory.
    pub fn used_bytes(&self) -> usize {
        self.machine.context.used_bytes()
    }

    fn target(&self) -> Target {
        let context = &self.machine.context;
        let Card { multiprocessors, shared_bytes, .. } = *context.card();
        Target { family: context.family(), multiprocessors, shared_bytes }
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        let Card { name, capability, .. } = self.card();
        format!("{} ({name}, {}.{})", self.device, capability.0, capability.1)
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn rules<'a>(&'a self, profile: &'a Profile) -> Box<dyn Rules + 'a> {
        Box::new(CudaRules::new(profile))
    }

    fn batch_limit(&self) -> usize {
        BATCH_LIMIT
    }

    fn values_are_on_host(&self) -> bool {
        false
    }

    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError> {
        let lowered = lower(planned.graph, planned.plan, planned.profile, self.target())?;
        Ok(Box::new(CudaProgram::load(&self.machine, planned, &lowered)?))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.machine.upload(tensor)
    }

    fn upload_bytes(&self, shape: &Shape, bytes: &[u8]) -> Result<DeviceValue, RunError> {
        let ty = TensorType::new(DType::U8, shape.clone());
        if ty.bytes() != bytes.len() {
            let (shape, expected, found) = (ty.shape.clone(), ty.bytes(), bytes.len());
            return Err(TensorError::Length { shape, expected, found }.into());
        }
        self.machine.upload_bytes(ty, bytes)
    }

    fn transfers(&self) -> &Transfers {
        &self.machine.transfers
    }

    fn synchronize(&self) -> Result<(), RunError> {
        self.machine.context.synchronize().map_err(run_error)
    }
}
