//! A backend whose runs can be held or fail: for tests of what happens while a model works.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutout_graph::passes::Pass;
use cutout_graph::plan::Rules;
use cutout_graph::{
    Backend, CompileError, DeviceValue, Graph, Planned, Port, Profile, Program, RunError, StepTime,
    Transfers, Weights,
};
use cutout_tensor::Tensor;

/// Longest time that a test waits for a run. A busy machine is slow; a defect waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts the runs of programs, and holds them or lets them fail when it is told to.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Runs that began, with one that is held.
    begun: usize,
    /// Runs that may still begin without being held; no bound without a value.
    allowed: Option<usize>,
    is_holding: bool,
    /// Runs that may still begin before all others fail, and their error.
    failing: Option<(usize, RunError)>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of runs that began, with one that is held.
    pub fn runs(&self) -> usize {
        self.lock().begun
    }

    /// Lets `count` runs begin and holds the next one.
    pub fn hold_after(&self, count: usize) {
        self.lock().allowed = Some(count);
    }

    /// Waits until a run is held.
    ///
    /// # Panics
    /// If there is none for two minutes.
    pub fn wait_until_held(&self) {
        let is_free = |state: &mut GateState| !state.is_holding;
        let waited = self.changed.wait_timeout_while(self.lock(), PATIENCE, is_free);
        let timeout = waited.unwrap_or_else(PoisonError::into_inner).1;
        assert!(!timeout.timed_out(), "no program was run");
    }

    /// Lets the run that is held go on, and all later ones.
    pub fn open(&self) {
        self.lock().allowed = None;
        self.changed.notify_all();
    }

    /// Lets `count` runs begin; the later ones fail with `error`, as those of a device that is lost.
    pub fn fail_after(&self, count: usize, error: RunError) {
        self.lock().failing = Some((count, error));
    }

    /// Begins a run.
    fn pass(&self) -> Result<(), RunError> {
        let mut state = self.lock();
        state.begun += 1;
        match &mut state.failing {
            None => {}
            Some((0, error)) => return Err(error.clone()),
            Some((left, _)) => *left -= 1,
        }
        if let Some(left @ 1..) = &mut state.allowed {
            *left -= 1;
            return Ok(());
        }
        state.is_holding = state.allowed.is_some();
        self.changed.notify_all();
        let is_held = |state: &mut GateState| state.allowed.is_some();
        let waited = self.changed.wait_while(state, is_held);
        waited.unwrap_or_else(PoisonError::into_inner).is_holding = false;
        Ok(())
    }
}

/// A backend behind a gate.
pub struct Gated {
    backend: Arc<dyn Backend>,
    gate: Arc<Gate>,
}

impl Gated {
    /// `backend` with a gate before every run of its programs.
    pub fn new(backend: Arc<dyn Backend>, gate: Arc<Gate>) -> Self {
        Gated { backend, gate }
    }

    fn behind_gate(&self, program: Box<dyn Program>) -> Box<dyn Program> {
        Box::new(GatedProgram { program, gate: Arc::clone(&self.gate) })
    }
}

impl Backend for Gated {
    fn name(&self) -> String {
        self.backend.name()
    }

    fn device(&self) -> &str {
        self.backend.device()
    }

    fn rules<'a>(&'a self, profile: &'a Profile) -> Box<dyn Rules + 'a> {
        self.backend.rules(profile)
    }

    fn batch_limit(&self) -> usize {
        self.backend.batch_limit()
    }

    fn values_are_on_host(&self) -> bool {
        self.backend.values_are_on_host()
    }

    fn passes(&self) -> &[Pass] {
        self.backend.passes()
    }

    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError> {
        Ok(self.behind_gate(self.backend.lower(planned)?))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.backend.upload(tensor)
    }

    fn transfers(&self) -> &Transfers {
        self.backend.transfers()
    }

    fn synchronize(&self) -> Result<(), RunError> {
        self.backend.synchronize()
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        profile: &Profile,
    ) -> Result<Box<dyn Program>, CompileError> {
        Ok(self.behind_gate(self.backend.compile(graph, weights, profile)?))
    }
}

struct GatedProgram {
    program: Box<dyn Program>,
    gate: Arc<Gate>,
}

impl Program for GatedProgram {
    fn inputs(&self) -> &[Port] {
        self.program.inputs()
    }

    fn outputs(&self) -> Vec<&str> {
        self.program.outputs()
    }

    fn run(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        self.gate.pass()?;
        self.program.run(inputs)
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        self.gate.pass()?;
        self.program.run_timed(inputs)
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.program.upload(tensor)
    }

    fn activation_bytes(&self) -> usize {
        self.program.activation_bytes()
    }

    fn held_bytes(&self) -> usize {
        self.program.held_bytes()
    }
}
