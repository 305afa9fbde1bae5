//! Attention.

use bytemuck::Zeroable;
use cutout_graph::CompileError;
use cutout_graph::ops::{Attention, AttentionInputs, BiasForm};
use cutout_tensor::DType;

use super::hopper;
use super::movement::{converted, row_walk};
use super::parameters::{self, code};
use super::split;
use super::{Input, Site};
use crate::launch::{Argument, KernelName, Launch, Place};
use crate::variants::{ATTENTION_WIDTHS, SINGLE_WIDTHS};

/// Queries of a block and keys of a tile, as in the kernel.
const TILE: usize = 32;

/// The same of the kernels of halves.
const HALF_TILE: usize = 64;

/// Parts that one line is joined from at most, as in the kernel.
const MOST_PARTS: usize = 128;

pub(crate) fn attention(op: &Attention, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let inputs = site.inputs.clone();
    let all: Vec<&Input> = inputs.iter().collect();
    let named = op.name_inputs(&all).map_err(|error| site.unsupported(error.to_string()))?;
    if let Some(half) = site.half
        && let Some(kernel) = half_kernel(op, &named, half, site)
    {
        return in_half(op, &named, (half, kernel), site);
    }
    general(op, &named, site)
}

/// A compiled attention of halves, and its dynamic shared memory.
struct HalfKernel {
    name: String,
    shared_bytes: usize,
}

/// The kernel for the widths of an attention, if it has nothing that only the general one knows.
fn half_kernel(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    half: DType,
    site: &Site<'_, '_>,
) -> Option<HalfKernel> {
    let width = inputs.query.ty.shape[2] / op.heads;
    let value_width = inputs.value.ty.shape[2] / op.heads;
    let special = op.key_mask || op.causal || (op.rope.is_some() && op.has_padding());
    if special || !width.is_multiple_of(8) || !value_width.is_multiple_of(8) {
        return None;
    }
    let &(query, value) =
        ATTENTION_WIDTHS.iter().find(|(query, value)| width <= *query && value_width <= *value)?;
    let terms = op.bias.map_or(0, |bias| HALF_TILE * (bias.grid[0] + bias.grid[1]) * 4);
    let shared_bytes = 3 * HALF_TILE * (query + 8) * 2
        + 2 * HALF_TILE * (value + 8) * 2
        + 2 * HALF_TILE * 4
        + terms;
    let name = format!("attention_{}_{query}_{value}", half.name());
    (shared_bytes <= site.target().shared_bytes).then_some(HalfKernel { name, shared_bytes })
}

/// An operand as the kernel of halves reads it: in that type, rows of 16-byte pieces.
fn as_half(input: &Input, half: DType, site: &mut Site<'_, '_>) -> Result<Input, CompileError> {
    let outer = &input.strides[..input.strides.len() - 1];
    let aligned = input.place.offset.is_multiple_of(16)
        && outer.iter().all(|stride| stride.is_multiple_of(8));
    if input.stored == half && aligned { Ok(input.clone()) } else { converted(input, half, site) }
}

/// Which tokens are rotated, and by which position: grid and window, where positions count within windows.
#[derive(Clone, Copy)]
struct Rotation<'a> {
    cos: &'a Input,
    sin: &'a Input,
    tail: usize,
    window: Option<([usize; 2], [usize; 2])>,
}

/// Rotates the heads of `[batch, tokens, channels]` into scratch memory.
fn rotated(
    input: &Input,
    rotation: Rotation<'_>,
    half: DType,
    site: &mut Site<'_, '_>,
) -> Result<Input, CompileError> {
    let Rotation { cos, sin, tail, window } = rotation;
    let shape = &input.ty.shape;
    let place = site.scratch(shape.elements() * half.size());
    let [grid_width, window_height, window_width] = match window {
        Some((grid, window)) => {
            [site.count(grid[1])?, site.count(window[0])?, site.count(window[1])?]
        }
        None => [0; 3],
    };
    let parameters = parameters::Rope {
        pairs: site.count(shape.elements() / 2)?,
        tokens: site.count(shape[1])?,
        rotated: site.count(shape[1] - tail)?,
        half: site.count(shape[2] / 2)?,
        positions: site.count(cos.ty.shape[0])?,
        table: site.count(cos.ty.shape[1])?,
        grid_width,
        window_height,
        window_width,
        from: code(input.stored),
        to: code(half),
        unused: 0,
        walk: row_walk(input, site)?,
    };
    let arguments = vec![
        input.read(),
        cos.read(),
        sin.read(),
        Argument::Write(place),
        Argument::of(&parameters),
    ];
    site.launch_each("rope", parameters.pairs, arguments);
    let strides = cutout_tensor::contiguous_strides(shape);
    Ok(Input { place, ty: input.ty.clone(), stored: half, strides, node: None })
}

/// Queries and keys as halves, rotated where the op asks for it.
fn prepared(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    half: DType,
    site: &mut Site<'_, '_>,
) -> Result<[Input; 2], CompileError> {
    let rope = op.rope.filter(|_| !site.lowering.fusions.is_rotated(site.node));
    let (Some(rope), Some([query_cos, query_sin, key_cos, key_sin])) = (rope, inputs.rope) else {
        return Ok([as_half(inputs.query, half, site)?, as_half(inputs.key, half, site)?]);
    };
    let window = op.windows.map(|windows| (windows.query_grid, windows.query_window));
    let rotation = Rotation { cos: query_cos, sin: query_sin, tail: 0, window };
    let query = rotated(inputs.query, rotation, half, site)?;
    let window = op.windows.map(|windows| (windows.key_grid, windows.key_window));
    let rotation = Rotation { cos: key_cos, sin: key_sin, tail: rope.key_tail, window };
    Ok([query, rotated(inputs.key, rotation, half, site)?])
}

/// Attention on the tensor cores.
fn in_half(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    (half, kernel): (DType, HalfKernel),
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let [query, key] = prepared(op, inputs, half, site)?;
    let value = as_half(inputs.value, half, site)?;
    if hopper::attention(op, [&query, &key, &value], inputs.padding, half, site) {
        return Ok(());
    }
    if site.lowering.fusions.has_tables(site.node) {
        return Err(site.unsupported("no kernel takes the tables of its bias".to_owned()));
    }
    let padding = match inputs.padding {
        Some([key, value]) => {
            [Some(as_half(key, half, site)?.place), Some(as_half(value, half, site)?.place)]
        }
        None => [None, None],
    };
    let named = AttentionInputs { query: &query, key: &key, value: &value, ..*inputs };
    let all = sizes(op, &named, site)?;
    let batch = query.ty.shape[0];
    let tiles = (all.window_queries as usize).div_ceil(HALF_TILE);
    let blocks = tiles * all.heads as usize * all.windows as usize * batch;
    let parts = parts(blocks, (all.window_keys as usize, HALF_TILE), site.target().multiprocessors);
    let lines = batch * all.queries as usize * all.heads as usize;
    let partial = partial_memory(lines, parts, all.value_width as usize, site);
    let bias = |index: usize| inputs.bias.map(|bias| bias[index].place);
    let mut pointers = vec![Some(query.place), Some(key.place), Some(value.place)];
    pointers.extend([bias(0), bias(1), padding[0], padding[1]]);
    let mut c = half_parameters(&all);
    c.parts = site.count(parts)?;
    let arguments = vec![
        Argument::Table(pointers),
        site.write(),
        partial.map_or(Argument::Null, Argument::Write),
        Argument::of(&c),
    ];
    let grid = [
        site.count(tiles * parts)?,
        site.count(all.heads as usize * all.windows as usize)?,
        site.count(batch)?,
    ];
    site.launches.push(Launch {
        kernel: KernelName::from(kernel.name),
        grid,
        block: 128,
        shared_bytes: site.count(kernel.shared_bytes)?,
        arguments,
    });
    join(partial, (lines, parts, all.value_width), site)
}

fn half_parameters(all: &parameters::Attention) -> parameters::AttentionHalf {
    macro_rules! same {
        ($($field:ident),*) => {
            parameters::AttentionHalf { parts: 1, unused: 0, $($field: all.$field),* }
        };
    }
    same!(
        heads,
        width,
        value_width,
        queries,
        keys,
        window_queries,
        window_keys,
        windows_x,
        windowed,
        query_grid_width,
        query_grid_height,
        query_window_width,
        query_window_height,
        key_grid_width,
        key_grid_height,
        key_window_width,
        key_window_height,
        bias,
        bias_width,
        bias_height,
        rows_stored,
        columns_stored,
        to,
        scale,
        query_batch,
        query_row,
        key_batch,
        key_row,
        value_batch,
        value_row,
        rows_batch,
        rows_row,
        rows_head,
        columns_batch,
        columns_row,
        columns_head
    )
}

/// Memory for the parts of every line: top, sum, two that are not used, channels.
pub(super) fn partial_memory(
    lines: usize,
    parts: usize,
    value_width: usize,
    site: &mut Site<'_, '_>,
) -> Option<Place> {
    let floats = value_width.next_multiple_of(4) + 4;
    (parts > 1).then(|| site.scratch(lines * parts * floats * DType::F32.size()))
}

/// Joins the parts of every line, if there are several.
pub(super) fn join(
    partial: Option<Place>,
    (lines, parts, width): (usize, usize, u32),
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let Some(partial) = partial else { return Ok(()) };
    let lines = site.count(lines)?;
    let join = parameters::Join { lines, parts: site.count(parts)?, width, to: code(site.stored) };
    let arguments = vec![Argument::Read(partial), site.write(), Argument::of(&join)];
    site.launch("join_parts", [lines, 1, 1], 256, arguments);
    Ok(())
}

/// Padded length of a row in shared memory: whole groups of four, and room so that rows start in different banks.
fn padded(width: usize) -> usize {
    width.next_multiple_of(4) + 4
}

/// The general kernel for values of this width.
fn general_kernel(value_width: usize, site: &Site<'_, '_>) -> Result<&'static str, CompileError> {
    match value_width {
        0..=32 => Ok("attention_f32_32"),
        33..=64 => Ok("attention_f32_64"),
        65..=256 => Ok("attention_f32_256"),
        257..=512 => Ok("attention_f32_512"),
        width => Err(site.unsupported(format!("heads with values {width} wide; 512 at most"))),
    }
}

/// Whether every row of queries, keys, values and padding can be read four channels at a time.
fn rows_are_wide(inputs: &AttentionInputs<&Input>, widths: [usize; 2]) -> bool {
    let fits = |input: &Input| {
        let rows = &input.strides[..input.strides.len() - 1];
        input.place.offset.is_multiple_of(4 * input.stored.size())
            && rows.iter().all(|stride| stride.is_multiple_of(4))
    };
    let AttentionInputs { query, key, value, padding, .. } = *inputs;
    let all = [query, key, value].into_iter().chain(padding.into_iter().flatten());
    widths.iter().all(|width| width.is_multiple_of(4)) && all.into_iter().all(fits)
}

/// An attention in f32: queries and threads of a block, and its dynamic shared memory.
struct SingleKernel {
    name: String,
    queries: usize,
    block: u32,
    shared_bytes: usize,
}

/// The kernel on the tensor cores, if it has nothing that only the general one knows.
fn single_kernel(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    c: &parameters::Attention,
) -> Option<SingleKernel> {
    let stored = [inputs.query, inputs.key, inputs.value].map(|input| input.stored);
    let relative = op.bias.is_some_and(|bias| bias.form == BiasForm::Relative);
    let special = op.windows.is_some() || op.rope.is_some() || op.has_padding() || relative;
    if special || c.wide == 0 || stored != [DType::F32; 3] {
        return None;
    }
    let (width, value_width) = (c.width as usize, c.value_width as usize);
    let &(keys, values) =
        SINGLE_WIDTHS.iter().find(|(keys, values)| width <= *keys && value_width <= *values)?;
    let queries = if c.queries <= 16 { 16 } else { 64 };
    // Rows of terms start 8 banks apart.
    let span = op.bias.map_or(0, |bias| bias.grid[0] + bias.grid[1]);
    let terms = if span == 0 { 0 } else { span + (40 - span % 32) % 32 };
    // As in the kernel: rows of keys start 16 banks apart, those of values 4.
    let row = if keys == 16 { 16 } else { keys + 16 };
    Some(SingleKernel {
        name: format!("attention_tf32_{keys}_{values}_{queries}"),
        queries,
        block: if queries == 16 { 32 } else { 128 },
        shared_bytes: ((queries + TILE) * row + TILE * (values + 4) + queries * (36 + terms)) * 4,
    })
}

/// Attention in f32: on the tensor cores where it is plain, else by the kernel that knows everything.
fn general(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    if split::attention(op, inputs, site)? {
        return Ok(());
    }
    let mut c = sizes(op, inputs, site)?;
    let batch = inputs.query.ty.shape[0];
    let value_width = c.value_width as usize;
    let floats =
        2 * TILE * c.padded_width as usize + TILE * c.padded_value as usize + TILE * (TILE + 1);
    let kernel = match single_kernel(op, inputs, &c) {
        Some(kernel) => kernel,
        None => SingleKernel {
            name: general_kernel(value_width, site)?.to_owned(),
            queries: TILE,
            block: 128,
            shared_bytes: floats * 4,
        },
    };
    let tiles = (c.window_queries as usize).div_ceil(kernel.queries);
    let blocks = tiles * c.heads as usize * c.windows as usize * batch;
    let parts = parts(blocks, (c.window_keys as usize, TILE), site.target().multiprocessors);
    c.parts = site.count(parts)?;
    let lines = batch * c.queries as usize * c.heads as usize;
    let partial = partial_memory(lines, parts, value_width, site);
    let optional = |input: Option<&Input>| input.map(|input| input.place);
    let bias = |index: usize| optional(inputs.bias.map(|bias| bias[index]));
    let rope = |index: usize| optional(inputs.rope.map(|rope| rope[index]));
    let padding = |index: usize| optional(inputs.padding.map(|padding| padding[index]));
    let pointers: Vec<Option<Place>> = vec![
        Some(inputs.query.place),
        Some(inputs.key.place),
        Some(inputs.value.place),
        optional(inputs.key_mask),
        bias(0),
        bias(1),
        rope(0),
        rope(1),
        rope(2),
        rope(3),
        padding(0),
        padding(1),
    ];
    let arguments = vec![
        Argument::Table(pointers),
        site.write(),
        partial.map_or(Argument::Null, Argument::Write),
        Argument::of(&c),
    ];
    if kernel.shared_bytes > site.target().shared_bytes {
        let (width, value) = (c.width, c.value_width);
        return Err(
            site.unsupported(format!("heads {width} and {value} wide do not fit this card"))
        );
    }
    let shared_bytes = site.count(kernel.shared_bytes)?;
    let grid = [
        site.count(tiles * parts)?,
        site.count(c.heads as usize * c.windows as usize)?,
        site.count(batch)?,
    ];
    site.launches.push(Launch {
        kernel: KernelName::from(kernel.name),
        grid,
        block: kernel.block,
        shared_bytes,
        arguments,
    });
    join(partial, (lines, parts, c.value_width), site)
}

/// Parts that the keys are split into, so that there are blocks for every multiprocessor.
fn parts(blocks: usize, (keys, tile): (usize, usize), multiprocessors: usize) -> usize {
    let tiles = keys.div_ceil(tile);
    let wanted = (2 * multiprocessors).div_ceil(blocks.max(1)).min(tiles).clamp(1, MOST_PARTS);
    // Every part has work: parts are whole numbers of tiles.
    tiles.div_ceil(tiles.div_ceil(wanted)).max(1)
}

/// Lengths and strides of an attention.
fn sizes(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    site: &Site<'_, '_>,
) -> Result<parameters::Attention, CompileError> {
    let AttentionInputs { query, key, value, .. } = *inputs;
    let (queries, keys) = (query.ty.shape[1], key.ty.shape[1]);
    let width = query.ty.shape[2] / op.heads;
    let value_width = value.ty.shape[2] / op.heads;
    let mut c = parameters::Attention::zeroed();
    [c.heads, c.width, c.value_width] =
        [site.count(op.heads)?, site.count(width)?, site.count(value_width)?];
    [c.queries, c.keys] = [site.count(queries)?, site.count(keys)?];
    [c.window_queries, c.window_keys, c.windows, c.windows_x] = [c.queries, c.keys, 1, 1];
    if let Some(windows) = &op.windows {
        let count = |axis: usize| windows.query_grid[axis].div_ceil(windows.query_window[axis]);
        c.windowed = 1;
        [c.query_grid_height, c.query_grid_width] = pair(windows.query_grid, site)?;
        [c.query_window_height, c.query_window_width] = pair(windows.query_window, site)?;
        [c.key_grid_height, c.key_grid_width] = pair(windows.key_grid, site)?;
        [c.key_window_height, c.key_window_width] = pair(windows.key_window, site)?;
        c.windows_x = site.count(count(1))?;
        c.windows = site.count(count(0) * count(1))?;
        c.window_queries = site.count(windows.query_window[0] * windows.query_window[1])?;
        c.window_keys = site.count(windows.key_window[0] * windows.key_window[1])?;
    }
    c.causal = u32::from(op.causal);
    [c.bias_height, c.bias_width] = [1, 1];
    if let (Some(bias), Some([rows, columns])) = (&op.bias, inputs.bias) {
        c.bias = match bias.form {
            BiasForm::Absolute => 1,
            BiasForm::Relative => 2,
        };
        [c.bias_height, c.bias_width] = pair(bias.grid, site)?;
        [c.rows_stored, c.columns_stored] = [code(rows.stored), code(columns.stored)];
        [c.rows_batch, c.rows_row, c.rows_head] = three(rows);
        [c.columns_batch, c.columns_row, c.columns_head] = three(columns);
    }
    [c.query_positions, c.key_positions] = [1, 1];
    if let (Some(rope), Some([query_cos, _, key_cos, _])) = (&op.rope, inputs.rope) {
        c.rotate = 1;
        c.query_positions = site.count(query_cos.ty.shape[0])?;
        c.key_positions = site.count(key_cos.ty.shape[0])?;
        let met = c.window_keys as usize;
        c.rotated_keys = site.count(met - rope.key_tail)?;
    }
    [c.padded_width, c.padded_value] =
        [site.count(padded(width))?, site.count(padded(value_width))?];
    [c.query_stored, c.key_stored, c.value_stored] =
        [code(query.stored), code(key.stored), code(value.stored)];
    c.to = code(site.stored);
    c.scale = op.scale;
    c.wide = u32::from(rows_are_wide(inputs, [width, value_width]));
    let stride = |input: &Input, axis: usize| input.strides[axis] as i64;
    [c.query_batch, c.query_row] = [stride(query, 0), stride(query, 1)];
    [c.key_batch, c.key_row] = [stride(key, 0), stride(key, 1)];
    [c.value_batch, c.value_row] = [stride(value, 0), stride(value, 1)];
    Ok(c)
}

fn pair(values: [usize; 2], site: &Site<'_, '_>) -> Result<[u32; 2], CompileError> {
    Ok([site.count(values[0])?, site.count(values[1])?])
}

fn three(input: &Input) -> [i64; 3] {
    std::array::from_fn(|axis| input.strides[axis] as i64)
}
