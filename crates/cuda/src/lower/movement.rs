//! Ops that move, compare or choose elements.

use bytemuck::Zeroable;
use cutout_graph::CompileError;
use cutout_graph::ops::{BinaryKind, CompareKind, Pad};
use cutout_tensor::{DType, contiguous_strides};

use super::elementwise::{Target, copy_floats};
use super::parameters::{self, Axes, MOST_AXES, Walk, code};
use super::{Input, Site};
use crate::launch::{Argument, Place};

const AND: i32 = 6;
const OR: i32 = 7;
const NOT: i32 = 8;
const SELECT: i32 = 9;

/// Copies the only input to the contiguous output.
pub(crate) fn copy(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let strides = contiguous_strides(&input.ty.shape);
    let target = Target { place: site.output, stored: site.stored, strides };
    copy_to(&input, &target, site)
}

/// Copies a value of any type to memory with other strides.
fn copy_to(input: &Input, target: &Target, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    if input.stored.is_float() && input.ty.dtype == DType::F32 {
        return copy_floats(input, target, site);
    }
    let axes = Axes::merged(&input.ty.shape, &[input.strides.clone(), target.strides.clone()]);
    let (Some(from), Some(to)) = (axes.walk(0), axes.walk(1)) else {
        return Err(too_many_axes(site, axes.lengths.len()));
    };
    let total = site.count(input.ty.shape.elements())?;
    let bytes = i32::try_from(input.stored.size()).unwrap_or(1);
    let parameters = parameters::Copy { total, bytes, from, to };
    let arguments = vec![input.read(), Argument::Write(target.place), Argument::of(&parameters)];
    site.launch_each("copy_elements", total, arguments);
    Ok(())
}

pub(crate) fn too_many_axes(site: &Site<'_, '_>, axes: usize) -> CompileError {
    site.unsupported(format!("{axes} axes that do not merge are too many"))
}

pub(crate) fn concat(axis: usize, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let strides = contiguous_strides(&site.ty.shape);
    let mut position = 0;
    for input in site.inputs.clone() {
        let length = input.ty.shape[axis];
        if input.ty.shape.elements() > 0 {
            let offset = position * strides[axis] * site.stored.size();
            let whole = site.output.from(offset);
            // Up to its last element, so that parts that do not meet can be written at the same time.
            let spans =
                input.ty.shape.iter().zip(&strides).map(|(length, step)| (length - 1) * step);
            let bytes = (spans.sum::<usize>() + 1) * site.stored.size();
            let target = Target {
                place: Place { bytes: bytes.min(whole.bytes), ..whole },
                stored: site.stored,
                strides: strides.clone(),
            };
            copy_to(&input, &target, site)?;
        }
        position += length;
    }
    Ok(())
}

pub(crate) fn cast(to: DType, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    // A cast to f32 may be stored in another float type.
    let to = if to == DType::F32 { site.stored } else { to };
    let total = site.count(site.ty.shape.elements())?;
    let parameters = parameters::Cast { total, from: code(input.stored), to: code(to) };
    let arguments = vec![input.read(), site.write(), Argument::of(&parameters)];
    site.launch_each("cast_elements", total, arguments);
    Ok(())
}

pub(crate) fn compare(kind: CompareKind, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let function = CompareKind::ALL.iter().position(|&known| known == kind).unwrap_or(0);
    let [a, b] = [site.inputs[0].clone(), site.inputs[1].clone()];
    let stored = same_storage(&a, &b, site)?;
    logic(i32::try_from(function).unwrap_or(0), [&a, &b, &b], stored, site)
}

pub(crate) fn logical(kind: BinaryKind, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let [a, b] = [site.inputs[0].clone(), site.inputs[1].clone()];
    let function = if kind == BinaryKind::And { AND } else { OR };
    logic(function, [&a, &b, &b], DType::Bool, site)
}

pub(crate) fn not(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let a = site.inputs[0].clone();
    logic(NOT, [&a, &a, &a], DType::Bool, site)
}

pub(crate) fn select(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let [condition, a, b] =
        [site.inputs[0].clone(), site.inputs[1].clone(), site.inputs[2].clone()];
    let stored = same_storage(&a, &b, site)?;
    if stored != site.stored {
        return Err(site.unsupported(format!("a choice among {stored} stored as {}", site.stored)));
    }
    logic(SELECT, [&a, &b, &condition], stored, site)
}

fn same_storage(a: &Input, b: &Input, site: &Site<'_, '_>) -> Result<DType, CompileError> {
    if a.stored == b.stored {
        return Ok(a.stored);
    }
    Err(site.unsupported(format!("operands are stored as {} and {}", a.stored, b.stored)))
}

fn logic(
    function: i32,
    [a, b, condition]: [&Input; 3],
    stored: DType,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let shape = site.ty.shape.to_vec();
    let strides = [a, b, condition].map(|input| input.broadcast_strides(&shape));
    let axes = Axes::merged(&shape, &strides);
    let (Some(walk_a), Some(walk_b), Some(walk_c)) = (axes.walk(0), axes.walk(1), axes.walk(2))
    else {
        return Err(too_many_axes(site, axes.lengths.len()));
    };
    let total = site.count(site.ty.shape.elements())?;
    let parameters = parameters::Logic {
        total,
        function,
        stored: code(stored),
        unused: 0,
        a: walk_a,
        b: walk_b,
        condition: walk_c,
    };
    let condition = if function == SELECT { condition.read() } else { Argument::Null };
    let arguments = vec![a.read(), b.read(), condition, site.write(), Argument::of(&parameters)];
    site.launch_each("logic", total, arguments);
    Ok(())
}

pub(crate) fn gather(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let [table, indices] = [site.inputs[0].clone(), site.inputs[1].clone()];
    let rows = table.ty.shape[0];
    let width: usize = table.ty.shape[1..].iter().product();
    let total = site.count(site.ty.shape.elements())?;
    let parameters = parameters::Gather {
        total,
        width: site.count(width)?,
        rows: site.count(rows)?,
        step: site.number(),
        index: code(indices.stored),
        from: code(table.stored),
        to: code(site.stored),
        unused: 0,
    };
    let problem = site.problem();
    let arguments =
        vec![table.read(), indices.read(), site.write(), problem, Argument::of(&parameters)];
    site.launch_each("gather", total, arguments);
    Ok(())
}

pub(crate) fn pad(op: &Pad, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let rank = site.ty.rank();
    if rank > MOST_AXES {
        return Err(too_many_axes(site, rank));
    }
    let mut parameters = parameters::Pad::zeroed();
    parameters.total = site.count(site.ty.shape.elements())?;
    parameters.rank = i32::try_from(rank).unwrap_or(0);
    (parameters.from, parameters.to) = (code(input.stored), code(site.stored));
    parameters.value = op.value;
    for axis in 0..rank {
        parameters.out_lengths[axis] = site.count(site.ty.shape[axis])?;
        parameters.in_lengths[axis] = site.count(input.ty.shape[axis])?;
        parameters.before[axis] = site.count(op.before[axis])?;
    }
    let arguments = vec![input.read(), site.write(), Argument::of(&parameters)];
    site.launch_each("pad", parameters.total, arguments);
    Ok(())
}

/// A float value in another float type, contiguous, in scratch memory.
pub(crate) fn converted(
    input: &Input,
    stored: DType,
    site: &mut Site<'_, '_>,
) -> Result<Input, CompileError> {
    let strides = contiguous_strides(&input.ty.shape);
    let place: Place = site.scratch(input.ty.shape.elements() * stored.size());
    let target = Target { place, stored, strides: strides.clone() };
    copy_floats(input, &target, site)?;
    Ok(Input { place, ty: input.ty.clone(), stored, strides, node: None })
}

/// The walk over the rows of a value whose last axis is dense.
pub(crate) fn row_walk(input: &Input, site: &Site<'_, '_>) -> Result<Walk, CompileError> {
    let rank = input.ty.rank().saturating_sub(1);
    let walk = parameters::walk(&input.ty.shape[..rank], &input.strides[..rank]);
    walk.ok_or_else(|| too_many_axes(site, rank))
}
