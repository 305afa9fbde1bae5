//! Convolutions of channel-last pictures: `sm90/gemm.cu` with CONV.

use cutout_graph::ops::Activation;
use cutout_tensor::DType;

use super::operand::{Grid, LINE, Matrix, Tokens, count, half_name, swizzle_of};
use super::product::{Finish, Parameters, ending, mask, read, written};
use super::tiles::{CONVOLUTION_TILES, Extent, Tile};
use crate::launch::{Argument, KernelName, Launch, Place, TensorMap};
use crate::lower::Target;
use crate::variants::Family;

/// What a kernel takes as taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taps {
    /// 3×3 with stride 1 and one row of zeros on every side. The weight is `[outputs, 3, 3, channels]`.
    Three,
    /// A transposed convolution of 2×2 with stride 2. The weight is `[2, 2, outputs, channels]`: four times the rows, and the bias is
    /// repeated four times.
    Upscale,
}

/// A convolution of pictures `[pictures, height, width, channels]`, contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// The pixels, halves.
    pub pixels: Place,
    /// Type of pixels and weight.
    pub stored: DType,
    /// Pictures, height, width, channels.
    pub shape: [usize; 4],
    /// The taps.
    pub taps: Taps,
    /// The weight, as [`Taps`] says, rows of `taps · channels`.
    pub weight: Matrix,
    /// `f32`, one for each row of the weight.
    pub bias: Option<Place>,
    /// Applied after the bias.
    pub activation: Activation,
    /// The result, contiguous.
    pub output: Place,
    /// Its type: the type of the pixels, or f32 (not for [`Taps::Upscale`]).
    pub to: DType,
}

impl Convolution {
    fn pixels(&self) -> Grid {
        let [pictures, height, width, channels] = self.shape;
        let tokens =
            Tokens { place: self.pixels, picture: height * width * channels, token: channels };
        Grid { tokens, stored: self.stored, pictures, height, width, channels }
    }

    fn taps(&self) -> usize {
        match self.taps {
            Taps::Three => 9,
            Taps::Upscale => 1,
        }
    }

    fn fits(&self) -> bool {
        let [pictures, height, width, channels] = self.shape;
        let rows = self.weight.rows;
        let elements = pictures * height * width;
        let output = match self.taps {
            Taps::Three => [DType::F32, self.stored].contains(&self.to),
            Taps::Upscale => self.to == self.stored && rows.is_multiple_of(256),
        };
        let plain = self.to != DType::F32 || self.activation == Activation::Identity;
        half_name(self.stored).is_some()
            && output
            && plain
            && matches!(self.activation, Activation::Identity | Activation::Gelu)
            && rows.is_multiple_of(8)
            && channels.is_multiple_of(8)
            && elements > 0
            && self.weight.columns == self.taps() * channels
            && self.weight.stored == self.stored
            && self.weight.takes_tma()
            && self.pixels.offset.is_multiple_of(16)
            && self.output.offset.is_multiple_of(16)
            && elements * channels * 2 <= self.pixels.bytes
            && elements * rows * self.to.size() <= self.output.bytes
    }
}

/// Pixels of a box along x and y.
#[derive(Clone, Copy)]
struct BoxOf {
    x: usize,
    y: usize,
}

impl BoxOf {
    /// The box of `pixels` pixels, a power of two wide, that covers a picture with the fewest boxes.
    fn of(pixels: usize, [height, width]: [usize; 2]) -> BoxOf {
        let boxes = [8, 16, 32, 64].map(|x| BoxOf { x, y: pixels / x });
        let cost = |b: &BoxOf| (b.tiles([height, width]).iter().product::<usize>(), b.x != 16);
        boxes.into_iter().min_by_key(cost).unwrap_or(BoxOf { x: 16, y: pixels / 16 })
    }

    /// Boxes along y and x.
    fn tiles(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        [height.div_ceil(self.y), width.div_ceil(self.x)]
    }
}

/// The launch of a convolution, if a kernel takes it.
pub fn convolution(c: &Convolution, target: Target) -> Option<Launch> {
    if target.family != Family::Sm90a || !c.fits() {
        return None;
    }
    let [pictures, height, width, _] = c.shape;
    let tile = tile_of(c, target.multiprocessors)?;
    let area = BoxOf::of(tile.block_rows(), [height, width]);
    let [tiles_y, tiles_x] = area.tiles([height, width]);
    // The rows of all pictures are one axis of the shuffled output: a box must not reach into the next picture.
    if c.taps == Taps::Upscale && pictures > 1 && !height.is_multiple_of(area.y) {
        return None;
    }
    let row_tiles = tiles_y * tiles_x * pictures;
    let column_tiles = c.weight.rows.div_ceil(tile.columns);
    let single = c.to == DType::F32;
    let finish = if single { Finish::Single(None) } else { Finish::Half(c.activation) };
    let name = format!("conv_{}_{}_{}", half_name(c.stored)?, tile.name, ending(&finish)?);
    let parameters = Parameters {
        rows: count(pictures * height * width)?,
        columns: count(c.weight.rows)?,
        depth: count(c.weight.columns)?,
        row_tiles: count(row_tiles)?,
        column_tiles: count(column_tiles)?,
        bias_mask: mask(c.bias),
        rope_tokens: 1,
        rope_grid: 1,
        rope_window: 1,
        height: count(height)?,
        width: count(width)?,
        tiles_x: count(tiles_x)?,
        tiles_y: count(tiles_y)?,
        box_x_log2: area.x.ilog2() as i32,
        channels: count(c.shape[3])?,
        taps: count(c.taps())?,
        shuffle: i32::from(c.taps == Taps::Upscale),
        ..Parameters::default()
    };
    let pixels = c.pixels().map(LINE, [area.y, area.x]);
    let weight = c.weight.map([tile.columns, LINE], swizzle_of(128));
    let mut arguments = vec![
        Argument::TensorMap(pixels.clone()),
        Argument::TensorMap(weight),
        Argument::TensorMap(output_map(c, tile, area)),
        // In the place of the residual, which is not read.
        Argument::TensorMap(pixels),
        read(c.bias),
    ];
    arguments.extend([const { Argument::Null }; 4]);
    arguments.push(Argument::of(&parameters));
    Some(Launch {
        kernel: KernelName::from(name),
        grid: [(row_tiles * column_tiles).min(target.multiprocessors) as u32, 1, 1],
        block: 384,
        shared_bytes: tile.shared_bytes([false, !single]) as u32,
        arguments,
    })
}

fn tile_of(c: &Convolution, multiprocessors: usize) -> Option<Tile> {
    let [pictures, height, width, channels] = c.shape;
    let depth = c.taps() * channels.next_multiple_of(LINE);
    let cost = |tile: &Tile| {
        let boxes = BoxOf::of(tile.block_rows(), [height, width]).tiles([height, width]);
        // As many rows as whole boxes have.
        let rows = boxes.iter().product::<usize>() * pictures * tile.block_rows();
        tile.cost(Extent { rows, columns: c.weight.rows, depth }, 2, multiprocessors)
    };
    let quarter = c.weight.rows / 4;
    let allowed = |tile: &&Tile| match c.taps {
        Taps::Three => true,
        // A chunk of columns belongs to one of the four pixels.
        Taps::Upscale => tile.columns >= 64 && quarter.is_multiple_of(tile.chunk_columns(false)),
    };
    CONVOLUTION_TILES.iter().filter(allowed).min_by_key(|tile| cost(tile)).copied()
}

/// The map that results are stored through: boxes of a consumer's pixels.
fn output_map(c: &Convolution, tile: Tile, area: BoxOf) -> TensorMap {
    let [pictures, height, width, _] = c.shape;
    let single = c.to == DType::F32;
    let chunk = if single { tile.slot_columns() } else { tile.chunk_columns(false) };
    let rows = tile.rows / area.x;
    let outputs = c.weight.rows;
    match c.taps {
        Taps::Three => {
            let tokens =
                Tokens { place: c.output, picture: height * width * outputs, token: outputs };
            let grid = Grid { tokens, stored: c.to, pictures, height, width, channels: outputs };
            written(grid.map(chunk, [rows, area.x]))
        }
        Taps::Upscale => {
            let quarter = outputs / 4;
            let bytes = |elements: usize| (elements * c.to.size()) as u64;
            TensorMap {
                place: c.output,
                writes: true,
                element: c.to,
                dims: [quarter, 2, width, 2, pictures * height].map(|n| n as u64).to_vec(),
                strides: [quarter, 2 * quarter, 2 * width * quarter, 4 * width * quarter]
                    .map(bytes)
                    .to_vec(),
                box_dims: [chunk, 1, area.x, 1, rows].map(|n| n as u32).to_vec(),
                swizzle: swizzle_of(2 * chunk),
            }
        }
    }
}
