//! One op at its place in a program.

use cutout_graph::{CompileError, Layout, NodeId};
use cutout_tensor::{DType, TensorType};

use super::{ALIGNMENT, Lowering, Target, WeightSource, WeightUse};
use crate::launch::{Argument, KernelName, Launch, Place, Region};
use crate::weights::Form;

/// An operand, where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// From the first element on.
    pub(crate) place: Place,
    /// Type and shape in the graph.
    pub(crate) ty: TensorType,
    /// Element type in memory.
    pub(crate) stored: DType,
    /// Strides in elements, one for each axis.
    pub(crate) strides: Vec<usize>,
    /// The weight or constant it is.
    pub(crate) node: Option<NodeId>,
}

impl Input {
    pub(crate) fn layout(&self) -> Layout {
        Layout { shape: self.ty.shape.clone(), strides: self.strides.clone(), offset: 0 }
    }

    /// The input broadcast to `shape`, which it broadcasts to.
    pub(crate) fn broadcast_strides(&self, shape: &[usize]) -> Vec<usize> {
        let missing = shape.len() - self.ty.rank();
        let stride = |axis: usize| match axis.checked_sub(missing) {
            Some(own) if self.ty.shape[own] == shape[axis] => self.strides[own],
            Some(_) | None => 0,
        };
        (0..shape.len()).map(stride).collect()
    }

    pub(crate) fn read(&self) -> Argument {
        Argument::Read(self.place)
    }
}

/// One op at its place in a program, and what its launches are added to.
pub(crate) struct Site<'a, 'l> {
    pub(crate) inputs: Vec<Input>,
    pub(crate) output: Place,
    /// Type and shape of the output in the graph.
    pub(crate) ty: TensorType,
    /// Element type of the output in memory.
    pub(crate) stored: DType,
    /// The node of the graph.
    pub(crate) node: NodeId,
    /// Half precision type that the node's products use.
    pub(crate) half: Option<DType>,
    pub(crate) lowering: &'l mut Lowering<'a>,
    pub(crate) launches: Vec<Launch>,
    /// Scratch memory taken so far.
    pub(super) scratch: usize,
    pub(super) op: String,
}

impl Site<'_, '_> {
    pub(crate) fn write(&self) -> Argument {
        Argument::Write(self.output)
    }

    pub(crate) fn target(&self) -> Target {
        self.lowering.target
    }

    /// Scratch memory of this step.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Place {
        let start = self.lowering.plan.arena_bytes.next_multiple_of(ALIGNMENT);
        let offset = start + self.scratch;
        self.scratch += bytes.next_multiple_of(ALIGNMENT);
        let all = &mut self.lowering.lowered.arena_bytes;
        *all = (*all).max(start + self.scratch);
        Place { region: Region::Arena, offset, bytes }
    }

    /// A weight or constant in another form.
    pub(crate) fn weight(&mut self, node: NodeId, form: Form) -> Place {
        let ty = self.lowering.graph.ty(node).clone();
        self.lowering.weight(node, &ty, form)
    }

    /// A table of the op itself.
    pub(crate) fn table(&mut self, bytes: Vec<u8>) -> Place {
        let length = bytes.len();
        let weights = &mut self.lowering.lowered.weights;
        weights.push(WeightUse { source: WeightSource::Table(bytes), bytes: length });
        Place { region: Region::Weight(weights.len() - 1), offset: 0, bytes: length }
    }

    /// Where kernels report bad values.
    pub(crate) fn problem(&mut self) -> Argument {
        self.lowering.problem()
    }

    /// Number of the step, from 1, for reports of bad values.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.lowering.lowered.steps.len() + 1).unwrap_or(u32::MAX)
    }

    /// Adds a launch of `blocks` blocks of `threads` threads.
    pub(crate) fn launch(
        &mut self,
        kernel: &'static str,
        grid: [u32; 3],
        block: u32,
        arguments: Vec<Argument>,
    ) {
        let kernel = KernelName::from(kernel);
        self.launches.push(Launch { kernel, grid, block, shared_bytes: 0, arguments });
    }

    /// Adds a launch with one thread for each of `count` things.
    pub(crate) fn launch_each(
        &mut self,
        kernel: &'static str,
        count: u32,
        arguments: Vec<Argument>,
    ) {
        self.launch(kernel, [count.div_ceil(256), 1, 1], 256, arguments);
    }

    /// A count that kernels index with 32 bits.
    pub(crate) fn count(&self, count: usize) -> Result<u32, CompileError> {
        let small = u32::try_from(count).ok().filter(|&count| count <= i32::MAX as u32);
        small.ok_or_else(|| {
            self.unsupported(format!("{count} elements are more than a kernel indexes"))
        })
    }

    pub(crate) fn unsupported(&self, reason: String) -> CompileError {
        CompileError::Unsupported { op: self.op.clone(), reason }
    }
}
