//! Chains of elementwise functions. The kernel interprets the steps, which are data: see `kernels/elementwise.cu` for the reason.

use bytemuck::Zeroable;
use cutout_graph::CompileError;
use cutout_graph::ops::{BinaryKind, Operand, Step, UnaryKind};
use cutout_tensor::DType;

use super::parameters::{
    Axes, Chain, ChainInput, ChainStep, Flat, MOST_AXES, MOST_INPUTS, MOST_STEPS, code,
};
use super::{Input, Site};
use crate::launch::{Argument, Place};

/// How a chain reads or writes four neighbours.
const STRIDED: i32 = 0;
const DENSE: i32 = 1;
const REPEATED: i32 = 2;

/// Operands of a step that are neither an input nor a named step.
const PREVIOUS: i16 = 1000;
const NUMBER: i16 = 1001;

/// Functions of two elements follow those of one.
const FIRST_BINARY: i16 = 64;

/// Limits of the kernel for contiguous values: inputs, steps, and groups of four elements of a thread.
const FLAT_INPUTS: usize = 4;
const FLAT_STEPS: usize = 8;
const FLAT_GROUPS: u32 = 4;

/// From this many elements on, that kernel fills a card.
const FLAT_ELEMENTS: usize = 1 << 19;

/// Where a chain writes: memory, element type and strides over the output's axes.
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) stored: DType,
    pub(crate) strides: Vec<usize>,
}

/// A chain over the inputs of a site, to its output.
pub(crate) fn chain(steps: &[Step], site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let target = Target {
        place: site.output,
        stored: site.stored,
        strides: cutout_tensor::contiguous_strides(&site.ty.shape),
    };
    let (inputs, shape) = (site.inputs.clone(), site.ty.shape.to_vec());
    chain_to(steps, &inputs, &shape, &target, site)
}

/// Copies one float value, perhaps to another float type or layout.
pub(crate) fn copy_floats(
    input: &Input,
    target: &Target,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let shape = input.ty.shape.to_vec();
    chain_to(&[], std::slice::from_ref(input), &shape, target, site)
}

fn chain_to(
    steps: &[Step],
    inputs: &[Input],
    shape: &[usize],
    target: &Target,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    if inputs.len() > MOST_INPUTS || steps.len() > MOST_STEPS {
        let (inputs, steps) = (inputs.len(), steps.len());
        return Err(
            site.unsupported(format!("a chain of {steps} steps over {inputs} inputs is too long"))
        );
    }
    let mut strides = vec![target.strides.clone()];
    strides.extend(inputs.iter().map(|input| input.broadcast_strides(shape)));
    let mut axes = Axes::merged(shape, &strides);
    if axes.lengths.is_empty() {
        axes.lengths.push(1);
        axes.strides.iter_mut().for_each(|strides| strides.push(1));
    }
    let rank = axes.lengths.len();
    if rank > MOST_AXES {
        return Err(site.unsupported(format!("{rank} axes that do not merge are too many")));
    }
    if let Some(flat) = flat(steps, inputs, &axes, target) {
        let mut pointers: Vec<Option<Place>> =
            inputs.iter().map(|input| Some(input.place)).collect();
        pointers.resize(FLAT_INPUTS, None);
        let arguments =
            vec![Argument::Table(pointers), Argument::Write(target.place), Argument::of(&flat)];
        let blocks = flat.total.div_ceil(256 * FLAT_GROUPS);
        site.launch("chain_flat", [blocks, 1, 1], 256, arguments);
        return Ok(());
    }
    let inner = axes.lengths[rank - 1];
    let groups = inner.div_ceil(4) * axes.lengths[..rank - 1].iter().product::<usize>();
    let mut chain = Chain::zeroed();
    chain.total = site.count(groups)?;
    chain.rank = i32::try_from(rank).unwrap_or(0);
    chain.steps = i32::try_from(steps.len()).unwrap_or(0);
    chain.inputs = i32::try_from(inputs.len()).unwrap_or(0);
    for (axis, &length) in axes.lengths.iter().enumerate() {
        chain.lengths[axis] = site.count(length)?;
        chain.out_strides[axis] = axes.strides[0][axis] as i64;
    }
    chain.out_stored = code(target.stored);
    chain.out_access = access(&axes, 0, target.place, target.stored);
    for (index, input) in inputs.iter().enumerate() {
        let mut described = ChainInput::zeroed();
        for axis in 0..rank {
            described.strides[axis] = axes.strides[index + 1][axis] as i64;
        }
        described.stored = code(input.stored);
        described.access = access(&axes, index + 1, input.place, input.stored);
        chain.input[index] = described;
    }
    for (index, step) in steps.iter().enumerate() {
        chain.step[index] = encode(step, index);
    }
    let mut pointers: Vec<Option<Place>> = inputs.iter().map(|input| Some(input.place)).collect();
    pointers.resize(MOST_INPUTS, None);
    let arguments =
        vec![Argument::Table(pointers), Argument::Write(target.place), Argument::of(&chain)];
    site.launch_each("chain", chain.total, arguments);
    Ok(())
}

/// The parameters of a chain over contiguous values, for the kernel that takes those; `None` for other chains, and for short ones, which need all the
/// threads they can get.
fn flat(steps: &[Step], inputs: &[Input], axes: &Axes, target: &Target) -> Option<Flat> {
    let elements: usize = axes.lengths.iter().product();
    let is_aligned = |place: Place, stored: DType| place.offset.is_multiple_of(4 * stored.size());
    let whole = cutout_tensor::contiguous_strides(&axes.lengths);
    if inputs.len() > FLAT_INPUTS
        || steps.len() > FLAT_STEPS
        || elements < FLAT_ELEMENTS
        || !elements.is_multiple_of(4)
        || axes.strides[0] != whole
        || !is_aligned(target.place, target.stored)
    {
        return None;
    }
    let mut flat = Flat::zeroed();
    flat.total = u32::try_from(elements / 4).ok()?;
    flat.steps = i32::try_from(steps.len()).ok()?;
    flat.out_stored = code(target.stored);
    for (index, input) in inputs.iter().enumerate() {
        let own = &axes.strides[index + 1];
        let repeated = own.iter().take_while(|&&stride| stride == 0).count();
        let period: usize = axes.lengths[repeated..].iter().product();
        if own[repeated..] != whole[repeated..]
            || repeated == own.len()
            || !period.is_multiple_of(4)
            || !is_aligned(input.place, input.stored)
        {
            return None;
        }
        flat.periods[index] = if repeated == 0 { 0 } else { u32::try_from(period / 4).ok()? };
        flat.stored[index] = code(input.stored);
    }
    for (index, step) in steps.iter().enumerate() {
        let encoded = encode(step, index);
        if encoded.a < 0 || encoded.b < 0 {
            return None;
        }
        flat.step[index] = encoded;
    }
    Some(flat)
}

/// Whether four neighbours along the innermost axis are one aligned access, one element, or neither.
fn access(axes: &Axes, tensor: usize, place: Place, stored: DType) -> i32 {
    let strides = &axes.strides[tensor];
    let (&inner, outer) = strides.split_last().unwrap_or((&1, &[]));
    let size = stored.size();
    let length = axes.lengths.last().copied().unwrap_or(1);
    if inner == 0 {
        return REPEATED;
    }
    let aligned = place.offset.is_multiple_of(4 * size)
        && outer.iter().all(|stride| stride.is_multiple_of(4))
        && length.is_multiple_of(4);
    if inner == 1 && aligned { DENSE } else { STRIDED }
}

fn encode(step: &Step, index: usize) -> ChainStep {
    let (function, a, b) = match *step {
        Step::Unary(kind, a) => (unary(kind), a, Operand::Number(0.0)),
        Step::Binary(kind, a, b) => (FIRST_BINARY + binary(kind), a, b),
    };
    let operand = |operand: Operand| match operand {
        Operand::Input(input) => (i16::try_from(input).unwrap_or(0), 0.0),
        Operand::Step(earlier) if earlier + 1 == index => (PREVIOUS, 0.0),
        Operand::Step(earlier) => (-1 - i16::try_from(earlier).unwrap_or(0), 0.0),
        Operand::Number(number) => (NUMBER, number),
    };
    let ((a, number_a), (b, number_b)) = (operand(a), operand(b));
    ChainStep { function, a, b, unused: 0, number_a, number_b }
}

/// Position in the kernel's list of functions of one element.
fn unary(kind: UnaryKind) -> i16 {
    UnaryKind::ALL.iter().position(|&known| known == kind).map_or(0, |index| index as i16)
}

fn binary(kind: BinaryKind) -> i16 {
    BinaryKind::ALL.iter().position(|&known| known == kind).map_or(0, |index| index as i16)
}
