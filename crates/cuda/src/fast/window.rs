//! Attention in windows: `sm90/window.cu` for 14×14 and 16×16 keys, `sm90/window_small.cu` for up to 64 keys.

use cutout_graph::ops::Windows;

use super::attention::Attention;
use super::operand::{LINE, count, half_name};
use super::product::read;
use crate::launch::{Argument, KernelName, Launch, Place};
use crate::lower::Target;

/// A variant of the kernel of 14×14 and 16×16 windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) side: usize,
    pub(super) width: usize,
    pub(super) bias: bool,
    pub(super) warpgroups: usize,
}

/// Every variant that is compiled.
pub(super) const VARIANTS: [Variant; 5] = [
    Variant { side: 14, width: 64, bias: true, warpgroups: 3 },
    Variant { side: 14, width: 80, bias: true, warpgroups: 2 },
    Variant { side: 14, width: 56, bias: false, warpgroups: 2 },
    Variant { side: 14, width: 96, bias: false, warpgroups: 2 },
    Variant { side: 16, width: 72, bias: false, warpgroups: 2 },
];

/// Widths of heads and most keys of the variants of the kernel of small windows.
pub(super) const SMALL_WIDTHS: [usize; 3] = [56, 72, 96];
/// Most keys of a small window, smallest first.
pub(super) const SMALL_KEYS: [usize; 2] = [16, 64];

impl Variant {
    /// Name of the kernel for a type.
    pub(super) fn name(&self, half: &str) -> String {
        let bias = if self.bias { "_bias" } else { "" };
        format!("window{}_{half}_{}{bias}", self.side, self.width)
    }

    /// Channels loaded after the first 64.
    fn rest(&self) -> usize {
        self.width.saturating_sub(LINE).next_multiple_of(16)
    }

    fn shared_bytes(&self) -> usize {
        let row = 128 + 2 * self.rest();
        // Rows of keys and of values.
        let rows = if self.side == 14 { 200 + 208 } else { 512 };
        let ones = (200 * 64usize).next_multiple_of(1024);
        let tables = 56 * 128 + (56 * 2 * self.rest()).next_multiple_of(1024);
        let terms = self.warpgroups * 4 * 16 * 58 * 2;
        let bias = if self.bias { ones + tables + terms } else { 0 };
        2 * (rows * row).next_multiple_of(1024) + bias + 1024
    }
}

/// Parameters of the kernel of 14×14 and 16×16 windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Parameters {
    pub(super) pictures: i32,
    pub(super) heads: i32,
    pub(super) key_grid: [i32; 2],
    pub(super) query_grid: [i32; 2],
    pub(super) query_window: i32,
    pub(super) windows: [i32; 2],
    pub(super) whole: [i32; 2],
    pub(super) query_stride: i32,
    pub(super) out_stride: i32,
    pub(super) scale: f32,
}

const _: () = assert!(size_of::<Parameters>() == 56);

/// Parameters of the kernel of small windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct SmallParameters {
    pub(super) pictures: i32,
    pub(super) heads: i32,
    pub(super) key_grid: [i32; 2],
    pub(super) query_grid: [i32; 2],
    pub(super) key_window: [i32; 2],
    pub(super) query_window: [i32; 2],
    pub(super) windows: [i32; 2],
    pub(super) query_stride: i32,
    pub(super) key_stride: i32,
    pub(super) value_stride: i32,
    pub(super) out_stride: i32,
    pub(super) scale: f32,
}

const _: () = assert!(size_of::<SmallParameters>() == 68);

fn pair(values: [usize; 2]) -> Option<[i32; 2]> {
    Some([count(values[0])?, count(values[1])?])
}

fn windows_of(windows: &Windows) -> [usize; 2] {
    [0, 1].map(|axis| windows.key_grid[axis].div_ceil(windows.key_window[axis]))
}

/// The launch of an attention in windows whose operands suit the kernels.
pub(super) fn attention(a: &Attention<'_>, windows: &Windows, target: Target) -> Option<Launch> {
    let [width, value_width] = a.widths;
    let [queries, keys] = a.tokens;
    let dense = a.operands[0].is_dense(a.pictures, queries)
        && [1, 2].iter().all(|&index| a.operands[index].is_dense(a.pictures, keys));
    if width != value_width || !dense {
        return None;
    }
    let key_window = windows.key_window;
    let square = key_window[0] == key_window[1];
    if key_window[0] * key_window[1] <= 64 {
        return small(a, windows);
    }
    let variant = VARIANTS.iter().find(|variant| {
        square
            && variant.side == key_window[0]
            && variant.width == width
            && variant.bias == a.op.bias.is_some()
    })?;
    let [height, query_side] = windows.query_window;
    let pooled = query_side == variant.side / 2 && !variant.bias;
    if height != query_side || !(query_side == variant.side || pooled) {
        return None;
    }
    if variant.side == 16 && windows.has_padding() {
        return None;
    }
    large(a, windows, variant, target)
}

fn large(
    a: &Attention<'_>,
    windows: &Windows,
    variant: &Variant,
    target: Target,
) -> Option<Launch> {
    let counts = windows_of(windows);
    let units = counts[0] * counts[1] * a.op.heads * a.pictures;
    let whole = [0, 1].map(|axis| windows.key_grid[axis] / variant.side);
    let parameters = Parameters {
        pictures: count(a.pictures)?,
        heads: count(a.op.heads)?,
        key_grid: pair(windows.key_grid)?,
        query_grid: pair(windows.query_grid)?,
        query_window: count(windows.query_window[1])?,
        windows: pair(counts)?,
        whole: pair(whole)?,
        query_stride: count(a.operands[0].token)?,
        out_stride: count(a.op.heads * variant.width)?,
        scale: a.op.scale,
    };
    let area = [variant.side; 2];
    let [key, value] = [1, 2].map(|index| a.grid(index, windows.key_grid));
    let narrow = if variant.rest() > 0 { variant.rest() } else { LINE };
    let maps = [
        key.map(LINE, area),
        value.map(LINE, area),
        key.map(narrow, area),
        value.map(narrow, area),
    ];
    let mut arguments: Vec<Argument> = maps.into_iter().map(Argument::TensorMap).collect();
    arguments.push(Argument::Read(a.operands[0].place));
    arguments.extend(optional(a.padding));
    arguments.extend(optional(a.tables));
    arguments.extend([Argument::Write(a.output), Argument::of(&parameters)]);
    Some(Launch {
        kernel: KernelName::from(variant.name(half_name(a.stored)?)),
        grid: [units.min(target.multiprocessors) as u32, 1, 1],
        block: 128 * (variant.warpgroups as u32 + 1),
        shared_bytes: variant.shared_bytes() as u32,
        arguments,
    })
}

fn optional(places: Option<[Place; 2]>) -> [Argument; 2] {
    [0, 1].map(|index| read(places.map(|places| places[index])))
}

/// Name of the kernel of small windows.
pub(super) fn small_name(half: &str, width: usize, keys: usize) -> String {
    format!("window_{half}_{width}_k{keys}")
}

fn small(a: &Attention<'_>, windows: &Windows) -> Option<Launch> {
    let width = a.widths[0];
    let keys = windows.key_window[0] * windows.key_window[1];
    let most = SMALL_KEYS.into_iter().find(|&most| keys <= most)?;
    if a.op.bias.is_some() || !SMALL_WIDTHS.contains(&width) {
        return None;
    }
    let counts = windows_of(windows);
    let tiles = (windows.query_window[0] * windows.query_window[1]).div_ceil(16);
    let units = a.pictures * counts[0] * counts[1] * a.op.heads * tiles;
    let parameters = SmallParameters {
        pictures: count(a.pictures)?,
        heads: count(a.op.heads)?,
        key_grid: pair(windows.key_grid)?,
        query_grid: pair(windows.query_grid)?,
        key_window: pair(windows.key_window)?,
        query_window: pair(windows.query_window)?,
        windows: pair(counts)?,
        query_stride: count(a.operands[0].token)?,
        key_stride: count(a.operands[1].token)?,
        value_stride: count(a.operands[2].token)?,
        out_stride: count(a.op.heads * width)?,
        scale: a.op.scale,
    };
    let mut arguments: Vec<Argument> =
        a.operands.iter().map(|operand| Argument::Read(operand.place)).collect();
    arguments.extend(optional(a.padding));
    arguments.extend([Argument::Write(a.output), Argument::of(&parameters)]);
    Some(Launch {
        kernel: KernelName::from(small_name(half_name(a.stored)?, width, most)),
        grid: [u32::try_from(units.div_ceil(4)).ok()?, 1, 1],
        block: 128,
        shared_bytes: 0,
        arguments,
    })
}
