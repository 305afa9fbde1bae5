//! Attention over whole pictures and over windows of 24×24: `sm90/attention.cu`. [`super::window`] has the other windows.

use cutout_graph::ops::{Attention as Op, BiasForm, Windows};
use cutout_tensor::DType;

use super::operand::{Grid, LINE, Matrix, Tokens, count, half_name, swizzle_of};
use super::window;
use crate::launch::{Argument, KernelName, Launch, Place, TensorMap};
use crate::lower::Target;
use crate::variants::Family;

/// Fewest queries that are worth tiles of 64.
const FEWEST_QUERIES: usize = 64;

/// An attention whose queries and keys are rotated already.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Attributes. Masks, causal order and absolute biases are not taken; `rope` is ignored.
    pub op: &'a Op,
    /// Type of queries, keys, values, tables and result.
    pub stored: DType,
    /// Pictures.
    pub pictures: usize,
    /// Queries and keys of a picture.
    pub tokens: [usize; 2],
    /// Channels of a head of queries and keys, and of values.
    pub widths: [usize; 2],
    /// Queries, keys and values.
    pub operands: [Tokens; 3],
    /// Padding key and padding value, `f32[channels]`, where windows reach beyond the grid.
    pub padding: Option<[Place; 2]>,
    /// For a relative bias, its tables for rows and columns, `[2 · side - 1, width]`, contiguous: the bias is their product with the query.
    pub tables: Option<[Place; 2]>,
    /// The result, `[pictures, queries, heads · value width]`, contiguous.
    pub output: Place,
}

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) widths: [usize; 2],
    pub(super) keys: usize,
    pub(super) warpgroups: usize,
    /// Rows of the queries' box.
    pub(super) rows: usize,
    pub(super) bias: bool,
    pub(super) split: bool,
    pub(super) ping: bool,
}

const fn variant(widths: [usize; 2], keys: usize, warpgroups: usize) -> Variant {
    let rows = 64 * warpgroups;
    Variant { widths, keys, warpgroups, rows, bias: false, split: false, ping: false }
}

/// Every variant that is compiled.
pub(super) const VARIANTS: [Variant; 11] = [
    variant([32, 32], 128, 1),
    variant([56, 56], 128, 1),
    variant([64, 64], 128, 1),
    Variant { ping: true, ..variant([72, 72], 128, 2) },
    variant([80, 80], 128, 1),
    variant([96, 96], 128, 1),
    Variant { bias: true, ..variant([64, 64], 128, 1) },
    Variant { bias: true, ..variant([80, 80], 128, 1) },
    Variant { rows: 96, ..variant([64, 64], 192, 1) },
    Variant { split: true, ..variant([256, 64], 128, 2) },
    Variant { split: true, ..variant([256, 256], 64, 2) },
];

impl Variant {
    /// Stages of the pipeline.
    pub(super) const STAGES: usize = 2;

    /// Name of the kernel for a type.
    pub(super) fn name(&self, half: &str) -> String {
        let Variant { widths: [width, value_width], keys, warpgroups, rows, .. } = *self;
        let mut name = format!("attention_{half}_{width}x{value_width}_k{keys}w{warpgroups}");
        if rows != 64 * warpgroups {
            name += &format!("q{rows}");
        }
        name += "s2";
        for (set, ending) in [(self.bias, "_bias"), (self.split, "_split"), (self.ping, "_ping")] {
            if set {
                name += ending;
            }
        }
        name
    }

    /// Blocks of 64 channels, and channels loaded after them.
    fn channels(width: usize) -> (usize, usize) {
        if width < LINE { (1, 0) } else { (width / LINE, (width % LINE).next_multiple_of(16)) }
    }

    fn shared_bytes(&self) -> usize {
        let ([key_blocks, value_blocks], rest) = {
            let (key, rest) = Self::channels(self.widths[0]);
            ([key, Self::channels(self.widths[1]).0], 2 * rest)
        };
        let stage = self.keys * (128 * (key_blocks + value_blocks) + 2 * rest);
        let terms = if self.bias { self.warpgroups * 8192 } else { 0 };
        self.rows * (128 * key_blocks + rest) + Self::STAGES * stage + terms + 1024
    }
}

/// Parameters of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Parameters {
    pub(super) queries: i32,
    pub(super) keys: i32,
    pub(super) heads: i32,
    pub(super) tiles: i32,
    pub(super) splits: i32,
    pub(super) pictures: i32,
    pub(super) windows_x: i32,
    pub(super) windows: i32,
    pub(super) query_window: i32,
    pub(super) key_window: i32,
    pub(super) query_grid: i32,
    pub(super) query_step: i32,
    pub(super) key_step_x: i32,
    pub(super) key_step_y: i32,
    pub(super) picture_queries: i32,
    pub(super) out_stride: i32,
    pub(super) query_tiles: i32,
    pub(super) items: i32,
    pub(super) scale: f32,
}

const _: () = assert!(size_of::<Parameters>() == 76);

/// Parameters of the kernel that joins the parts of a split attention.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Combine {
    pub(super) rows: i32,
    pub(super) splits: i32,
}

impl Attention<'_> {
    /// Whether types, alignment and attributes suit all the kernels.
    fn fits(&self) -> bool {
        let Op { key_mask, causal, bias, .. } = *self.op;
        let relative = bias.is_none_or(|bias| bias.form == BiasForm::Relative);
        let [queries, _] = self.tokens;
        let written = self.pictures * queries * self.op.heads * self.widths[1] * 2;
        !key_mask
            && !causal
            && relative
            && bias.is_some() == self.tables.is_some()
            && self.op.has_padding() == self.padding.is_some()
            && half_name(self.stored).is_some()
            && self.operands.iter().all(Tokens::is_aligned)
            && self.output.offset.is_multiple_of(16)
            && self.output.bytes >= written
            && self.pictures > 0
            && queries > 0
    }

    pub(super) fn grid(&self, index: usize, [height, width]: [usize; 2]) -> Grid {
        Grid {
            tokens: self.operands[index],
            stored: self.stored,
            pictures: self.pictures,
            height,
            width,
            channels: self.op.heads * self.widths[usize::from(index == 2)],
        }
    }
}

/// The launches of an attention, if a kernel takes it. `scratch` gives memory of a length in bytes for the time of the launches.
pub fn attention(
    a: &Attention<'_>,
    target: Target,
    scratch: &mut dyn FnMut(usize) -> Place,
) -> Option<Vec<Launch>> {
    if target.family != Family::Sm90a || !a.fits() {
        return None;
    }
    let Some(windows) = &a.op.windows else { return whole(a, target, scratch) };
    if is_24(windows) && a.widths == [64, 64] && a.op.bias.is_none() && !windows.has_padding() {
        let variant = VARIANTS.iter().find(|variant| variant.rows == 96)?;
        return Some(vec![launch(
            a,
            (variant, target.multiprocessors),
            Extent::windows(a, windows, variant),
            [None; 2],
        )?]);
    }
    Some(vec![window::attention(a, windows, target)?])
}

fn is_24(windows: &Windows) -> bool {
    let square = [24, 24];
    windows.query_window == square && windows.key_window == square
}

/// Attention of every query to every key of its picture.
fn whole(
    a: &Attention<'_>,
    target: Target,
    scratch: &mut dyn FnMut(usize) -> Place,
) -> Option<Vec<Launch>> {
    let [queries, keys] = a.tokens;
    let on_64 = a.op.bias.is_none_or(|bias| bias.grid == [64, 64] && a.tokens == [4096, 4096]);
    if queries < FEWEST_QUERIES || !on_64 {
        return None;
    }
    let variant = VARIANTS.iter().find(|variant| {
        variant.widths == a.widths
            && variant.bias == a.op.bias.is_some()
            && variant.rows == 64 * variant.warpgroups
    })?;
    let splits = if variant.split { splits(a, variant, target.multiprocessors) } else { 1 };
    let mut extent = Extent::whole(a, variant);
    extent.tiles = keys.div_ceil(variant.keys).div_ceil(splits);
    extent.splits = splits;
    if !variant.split {
        return Some(vec![launch(a, (variant, target.multiprocessors), extent, [None; 2])?]);
    }
    let rows = a.pictures * queries * a.op.heads;
    let part = scratch(splits * rows * a.widths[1] * 4);
    let tops = scratch(splits * rows * 8);
    let main = launch(a, (variant, target.multiprocessors), extent, [Some(part), Some(tops)])?;
    let combine = Combine { rows: count(rows)?, splits: count(splits)? };
    let name = format!("{}_combine", variant.name(half_name(a.stored)?));
    let arguments = vec![
        Argument::Read(part),
        Argument::Read(tops),
        Argument::Write(a.output),
        Argument::of(&combine),
    ];
    let grid = [rows.div_ceil(8) as u32, 1, 1];
    let combine =
        Launch { kernel: KernelName::from(name), grid, block: 256, shared_bytes: 0, arguments };
    Some(vec![main, combine])
}

/// Parts that the keys are divided into, so that there is about one block for each multiprocessor.
fn splits(a: &Attention<'_>, variant: &Variant, multiprocessors: usize) -> usize {
    let blocks = a.tokens[0].div_ceil(64 * variant.warpgroups) * a.op.heads * a.pictures;
    let tiles = a.tokens[1].div_ceil(variant.keys);
    let wanted = (multiprocessors / blocks.max(1)).clamp(1, 16).min(tiles);
    // Every part has a tile.
    tiles.div_ceil(tiles.div_ceil(wanted))
}

/// Queries and keys of one block's picture or window, and how tiles walk over them.
#[derive(Clone, Copy)]
struct Extent {
    queries: usize,
    keys: usize,
    tiles: usize,
    splits: usize,
    /// Windows of a picture along y and x.
    windows: [usize; 2],
    /// Height and width of the grids of queries and keys.
    grids: [[usize; 2]; 2],
    /// Widths of the windows of queries and keys; of the whole grid without windows.
    widths: [usize; 2],
    /// Height and width of the boxes of queries and keys.
    boxes: [[usize; 2]; 2],
    flat: bool,
}

impl Extent {
    fn whole(a: &Attention<'_>, variant: &Variant) -> Extent {
        let [queries, keys] = a.tokens;
        Extent {
            queries,
            keys,
            tiles: keys.div_ceil(variant.keys),
            splits: 1,
            windows: [1, 1],
            grids: [[1, queries], [1, keys]],
            widths: [queries, keys],
            boxes: [[1, variant.rows], [1, variant.keys]],
            flat: true,
        }
    }

    /// Square windows that tile their grids and whose rows divide the boxes.
    fn windows(a: &Attention<'_>, windows: &Windows, variant: &Variant) -> Extent {
        let [query, key] = [windows.query_window[1], windows.key_window[1]];
        debug_assert!(variant.rows.is_multiple_of(query) && variant.keys.is_multiple_of(key));
        debug_assert!(a.op.windows.is_some());
        Extent {
            queries: query * query,
            keys: key * key,
            tiles: (key * key).div_ceil(variant.keys),
            splits: 1,
            windows: [windows.key_grid[0] / key, windows.key_grid[1] / key],
            grids: [windows.query_grid, windows.key_grid],
            widths: [query, key],
            boxes: [[variant.rows / query, query], [variant.keys / key, key]],
            flat: false,
        }
    }
}

fn launch(
    a: &Attention<'_>,
    (variant, multiprocessors): (&Variant, usize),
    extent: Extent,
    scratch: [Option<Place>; 2],
) -> Option<Launch> {
    let heads = a.op.heads;
    let windows = extent.windows[0] * extent.windows[1];
    let query_tiles = extent.queries.div_ceil(64 * variant.warpgroups);
    let items = query_tiles * heads * a.pictures * windows.max(extent.splits);
    let parameters = Parameters {
        queries: count(extent.queries)?,
        keys: count(extent.keys)?,
        heads: count(heads)?,
        tiles: count(extent.tiles)?,
        splits: count(extent.splits)?,
        pictures: count(a.pictures)?,
        windows_x: count(extent.windows[1])?,
        windows: count(windows)?,
        query_window: count(extent.widths[0])?,
        key_window: count(extent.widths[1])?,
        query_grid: count(extent.grids[0][1])?,
        query_step: i32::from(extent.flat),
        key_step_x: if extent.flat { count(variant.keys)? } else { 0 },
        key_step_y: if extent.flat { 0 } else { count(extent.boxes[1][0])? },
        picture_queries: count(a.tokens[0])?,
        out_stride: count(heads * a.widths[1])?,
        query_tiles: count(query_tiles)?,
        items: count(items)?,
        scale: a.op.scale,
    };
    let write = |place: Option<Place>| place.map_or(Argument::Null, Argument::Write);
    let mut arguments: Vec<Argument> =
        maps(a, extent)?.into_iter().map(Argument::TensorMap).collect();
    arguments.extend([Argument::Write(a.output), write(scratch[0]), write(scratch[1])]);
    arguments.push(Argument::of(&parameters));
    // Short items gain from blocks that take several: the next one's loads begin early.
    let blocks = if extent.flat { items } else { items.min(2 * multiprocessors) };
    Some(Launch {
        kernel: KernelName::from(variant.name(half_name(a.stored)?)),
        grid: [u32::try_from(blocks).ok()?, 1, 1],
        block: 128 * (variant.warpgroups as u32 + 1),
        shared_bytes: variant.shared_bytes() as u32,
        arguments,
    })
}

/// The maps in the order of the kernel: queries, keys, values; the same for the channels after blocks of 64; tables of rows and columns, and
/// their rest. Where a kernel has no use for one, another stands in.
fn maps(a: &Attention<'_>, extent: Extent) -> Option<Vec<TensorMap>> {
    let rest = Variant::channels(a.widths[0]).1;
    let grids = [0, 1, 2].map(|index| {
        let which = usize::from(index > 0);
        (a.grid(index, extent.grids[which]), extent.boxes[which])
    });
    let wide = grids.map(|(grid, area)| grid.map(LINE, area));
    let narrow =
        if rest > 0 { grids.map(|(grid, area)| grid.map(rest, area)) } else { wide.clone() };
    let tables = match a.tables {
        None => vec![wide[0].clone(); 4],
        Some(tables) => {
            let table = |index: usize, rows: usize, columns: usize| {
                let matrix = Matrix::dense(tables[index], a.stored, [127, a.widths[0]]);
                matrix.takes_tma().then(|| matrix.map([rows, columns], swizzle_of(2 * columns)))
            };
            let narrow = if rest > 0 { rest } else { LINE };
            vec![
                table(0, 64, LINE)?,
                table(1, 128, LINE)?,
                table(0, 64, narrow)?,
                table(1, 128, narrow)?,
            ]
        }
    };
    Some(wide.into_iter().chain(narrow).chain(tables).collect())
}
