//! Ops along one axis.

use cutout_graph::CompileError;
use cutout_graph::ops::{ArgMax, CumulativeSum, GroupNorm, LayerNorm, Reduce, ReduceKind, Rope};
use cutout_tensor::{DType, contiguous_strides};

use super::followers::Follower;
use super::hopper;
use super::movement::{row_walk, too_many_axes};
use super::parameters::{self, Lines, Rows, Walk, code};
use super::{Input, Site};
use crate::launch::Argument;

/// Reductions of at least this many elements are shared by the threads of a block.
const SHARED_REDUCTION: usize = 64;

/// Rows up to this length are one thread's.
const NARROW_ROW: u32 = 16;

/// Flag of those kernels: apply GELU to the result.
const WITH_GELU: u32 = 2;

/// Widths with a layer norm of their own, with its name and the lanes of a row.
const NORM_ROWS: [(u32, &str, u32); 4] = [
    (32, "layer_norm_32", 8),
    (64, "layer_norm_64", 16),
    (128, "layer_norm_128", 32),
    (256, "layer_norm_256", 32),
];

/// Longest row that one warp takes.
const SHORT_ROW: u32 = 256;

/// Lines along `axis` of a contiguous value.
fn lines(input: &Input, axis: usize, site: &Site<'_, '_>) -> Result<Lines, CompileError> {
    let shape = &input.ty.shape;
    let inner: usize = shape[axis + 1..].iter().product();
    let length = shape[axis];
    Ok(Lines {
        lines: site.count(shape.elements() / length.max(1))?,
        length: site.count(length)?,
        inner: site.count(inner.max(1))?,
        from: code(input.stored),
        to: code(site.stored),
        epsilon: 0.0,
    })
}

pub(crate) fn arg_max(op: &ArgMax, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let lines = lines(&input, op.axis, site)?;
    let arguments = vec![input.read(), site.write(), Argument::of(&lines)];
    site.launch("arg_max", [lines.lines.div_ceil(4), 1, 1], 128, arguments);
    Ok(())
}

pub(crate) fn cumulative_sum(
    op: &CumulativeSum,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let lines = lines(&input, op.axis, site)?;
    let arguments = vec![input.read(), site.write(), Argument::of(&lines)];
    site.launch_each("cumulative_sum", lines.lines, arguments);
    Ok(())
}

pub(crate) fn layer_norm(op: &LayerNorm, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    if hopper::layer_norm(op, site) {
        return Ok(());
    }
    let input = site.inputs[0].clone();
    let (gain, shift) = (site.inputs[1].read(), site.inputs[2].read());
    if op.axis + 1 < site.ty.rank() {
        let lines = Lines { epsilon: op.epsilon, ..lines(&input, op.axis, site)? };
        let arguments = vec![input.read(), gain, shift, site.write(), Argument::of(&lines)];
        site.launch_each("layer_norm_axis", lines.lines, arguments);
        return Ok(());
    }
    let mut rows = rows_of(&input, site)?;
    rows.epsilon = op.epsilon;
    let dense = rows.aligned != 0 && input.layout().is_contiguous();
    let own = NORM_ROWS.iter().find(|&&(width, ..)| dense && width == rows.width);
    if own.is_some()
        && site.stored == DType::F32
        && let Some(Follower { node, add: None, gelu: true }) = site.lowering.follower()
    {
        rows.aligned |= WITH_GELU;
        site.lowering.fusions.drop_step(node);
    }
    let arguments = vec![input.read(), gain, shift, site.write(), Argument::of(&rows)];
    if let Some(&(_, kernel, lanes)) = own {
        // Every group of lanes has four rows.
        let blocks = (rows.rows.div_ceil(4) * lanes).div_ceil(128);
        site.launch(kernel, [blocks, 1, 1], 128, arguments);
    } else if rows.width <= NARROW_ROW {
        site.launch("layer_norm_narrow", [rows.rows.div_ceil(128), 1, 1], 128, arguments);
    } else {
        site.launch("layer_norm", [rows.rows.div_ceil(4), 1, 1], 128, arguments);
    }
    Ok(())
}

fn rows_of(input: &Input, site: &Site<'_, '_>) -> Result<Rows, CompileError> {
    let walk = row_walk(input, site)?;
    let width = input.ty.shape.last_axis();
    let places = [(input.place, input.stored), (site.output, site.stored)];
    let aligned = width.is_multiple_of(4)
        && walk.strides.iter().all(|stride| stride % 4 == 0)
        && places.iter().all(|(place, stored)| place.offset.is_multiple_of(4 * stored.size()))
        && site.inputs.iter().skip(1).all(|input| input.place.offset.is_multiple_of(16));
    Ok(Rows {
        rows: site.count(input.ty.shape.rows())?,
        width: site.count(width)?,
        from: code(input.stored),
        to: code(site.stored),
        epsilon: 0.0,
        aligned: u32::from(aligned),
        walk,
    })
}

pub(crate) fn softmax(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let rows = rows_of(&input, site)?;
    let arguments = vec![input.read(), site.write(), Argument::of(&rows)];
    if rows.width <= NARROW_ROW {
        site.launch("softmax_narrow", [rows.rows.div_ceil(128), 1, 1], 128, arguments);
    } else if rows.width <= SHORT_ROW {
        site.launch("softmax_short", [rows.rows.div_ceil(4), 1, 1], 128, arguments);
    } else {
        site.launch("softmax", [rows.rows, 1, 1], 128, arguments);
    }
    Ok(())
}

pub(crate) fn reduce(op: &Reduce, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let shape = &input.ty.shape;
    let strides = contiguous_strides(shape);
    let part = |reduced: bool| -> Option<Walk> {
        let axes: Vec<usize> =
            (0..shape.rank()).filter(|axis| op.axes.contains(axis) == reduced).collect();
        let lengths: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
        let steps: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
        parameters::walk(&lengths, &steps)
    };
    let (Some(kept), Some(reduced)) = (part(false), part(true)) else {
        return Err(too_many_axes(site, shape.rank()));
    };
    let count: usize = op.axes.iter().map(|&axis| shape[axis]).product();
    let outputs = site.count(site.ty.shape.elements())?;
    let kind = match op.kind {
        ReduceKind::Sum => 0,
        ReduceKind::Mean => 1,
        ReduceKind::Maximum => 2,
        ReduceKind::Minimum => 3,
    };
    // Where neighbouring outputs are neighbours in memory and there are many, a thread each reads whole lines.
    let threads = if count >= SHARED_REDUCTION && outputs < 1 << 16 { 128 } else { 1 };
    let parameters = parameters::Reduce {
        outputs,
        count: site.count(count)?,
        kind,
        from: code(input.stored),
        to: code(site.stored),
        threads,
        kept,
        reduced,
    };
    let arguments = vec![input.read(), site.write(), Argument::of(&parameters)];
    let blocks = if threads == 1 { outputs.div_ceil(128) } else { outputs };
    site.launch("reduce", [blocks, 1, 1], 128, arguments);
    Ok(())
}

pub(crate) fn group_norm(op: &GroupNorm, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let shape = &input.ty.shape;
    let channels = shape.last_axis();
    let pixels: usize = shape[1..shape.rank() - 1].iter().product();
    let groups = shape[0] * op.groups;
    let parts = (8 * site.target().multiprocessors / groups.max(1)).clamp(1, pixels.div_ceil(64));
    let total = site.count(shape.elements())?;
    let places = [(input.place, input.stored), (site.output, site.stored)];
    let wide = (channels / op.groups).is_multiple_of(4)
        && places.iter().all(|(place, stored)| place.offset.is_multiple_of(4 * stored.size()))
        && site.inputs.iter().skip(1).all(|input| input.place.offset.is_multiple_of(16));
    let parameters = parameters::GroupNorm {
        pixels: site.count(pixels)?,
        channels: site.count(channels)?,
        groups: site.count(op.groups)?,
        parts: site.count(parts)?,
        from: code(input.stored),
        to: code(site.stored),
        epsilon: op.epsilon,
        total,
        wide: u32::from(wide),
    };
    let statistics = site.scratch(groups * parts * 8);
    let joined = site.scratch(groups * 8);
    let groups = site.count(groups)?;
    let arguments = vec![input.read(), Argument::Write(statistics), Argument::of(&parameters)];
    site.launch("group_parts", [groups, parameters.parts, 1], 256, arguments);
    let arguments = vec![
        Argument::Read(statistics),
        Argument::Write(joined),
        Argument::of(&parameters),
        Argument::of(&groups),
    ];
    site.launch_each("group_join", groups, arguments);
    let (gain, shift) = (site.inputs[1].read(), site.inputs[2].read());
    let arguments = vec![
        input.read(),
        Argument::Read(joined),
        gain,
        shift,
        site.write(),
        Argument::of(&parameters),
    ];
    site.launch_each("group_apply", if wide { total / 4 } else { total }, arguments);
    Ok(())
}

pub(crate) fn rope(op: &Rope, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let input = site.inputs[0].clone();
    let shape = &input.ty.shape;
    let (tokens, width) = (shape[shape.rank() - 2], shape.last_axis());
    let table = &site.inputs[1].ty.shape;
    let parameters = parameters::Rope {
        pairs: site.count(shape.elements() / 2)?,
        tokens: site.count(tokens)?,
        rotated: site.count(tokens - op.tail)?,
        half: site.count(width / 2)?,
        positions: site.count(table[0])?,
        table: site.count(table[1])?,
        grid_width: 0,
        window_height: 0,
        window_width: 0,
        from: code(input.stored),
        to: code(site.stored),
        unused: 0,
        walk: row_walk(&input, site)?,
    };
    let (cos, sin) = (site.inputs[1].read(), site.inputs[2].read());
    let arguments = vec![input.read(), cos, sin, site.write(), Argument::of(&parameters)];
    site.launch_each("rope", parameters.pairs, arguments);
    Ok(())
}
