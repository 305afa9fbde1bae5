//! Winograd convolutions F(2x2, 3x3): kernels of 3 by 3 that compute 2 by 2 pixels from 4 by 4 with 16 multiplications per channel
//! instead of 36.
//!
//! Along one direction, two outputs `y` of a kernel `g` over four pixels `d` are
//!
//! ```text
//! m0 = (d0 - d2) g0                     y0 = m0 + m1 + m2
//! m1 = (d1 + d2) (g0 + g1 + g2) / 2     y1 = m1 - m2 - m3
//! m2 = (d2 - d1) (g0 - g1 + g2) / 2
//! m3 = (d1 - d3) g2
//! ```
//!
//! and in two dimensions there are 4 by 4 such products. Each of the 16 is a product of matrices over the channels that contributes
//! to up to four outputs. A NaN or infinity in a pixel reaches all four outputs of a block, including those whose kernel does not
//! cover the pixel: sums and differences of it do not cancel.

use std::ops::Range;

use cutout_graph::{CompileError, RunError, ops};
use cutout_parallel::Pool;
use cutout_tensor::{DType, Tensor, TensorError, memory};

use super::patches::ZEROS;
use super::weights::{Form, Weight};
use crate::execute::{Execute, Io};
use crate::gemm::{
    Epilogue, LeftOperands, PackedWeights, Quarters, Term, Use, WeightData, WeightView,
    combined_gemm,
};
use crate::kernels::image::{Image, Strides, load_count, store_count};
use crate::lower::{Lowered, Site};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Width and height of a kernel.
const KERNEL: usize = 3;
/// Input pixels of a block along one direction, and products.
const SIDE: usize = 4;

/// The two pixels of each product along one direction, and whether the second is subtracted.
const PIXELS: [(usize, usize, bool); SIDE] =
    [(0, 2, true), (1, 2, false), (2, 1, true), (1, 3, true)];
/// The factors of the kernel's elements in each product.
const FACTORS: [[f64; KERNEL]; SIDE] =
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
/// Signs of each product in the two outputs along one direction.
const SIGNS: [[i8; 2]; SIDE] = [[1, 0], [1, 1], [1, -1], [0, -1]];

/// Least number of channels, in and out, at which the transforms cost less than they save.
const LEAST_CHANNELS: usize = 64;
/// Least number of blocks, for enough tasks.
const LEAST_BLOCKS: usize = 1024;

/// A Winograd convolution.
pub(super) struct Winograd {
    op: ops::Conv2d,
    input: Image,
    output: Image,
    weight: Weight<Transformed>,
}

/// A weight `[outputs, inputs, 3, 3]` as 16 matrices, one for each product.
struct Transformed {
    isa: Isa,
}

impl Form for Transformed {
    type Packed = Vec<PackedWeights>;

    fn name(&self) -> String {
        format!("conv2d winograd {}", self.isa.name())
    }

    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        let (outputs, depth) = (weight.shape()[0], weight.shape()[1]);
        let weight = weight.cast(DType::F32)?.to_vec::<f32>()?;
        let matrix = |product: usize| {
            let (down, right) = (FACTORS[product / SIDE], FACTORS[product % SIDE]);
            let kernels = weight.chunks_exact(KERNEL * KERNEL);
            let kernels = kernels.map(|kernel| transformed(kernel, down, right));
            let matrix: Vec<f32> = memory::collected(outputs * depth, kernels)?;
            let view = WeightView::output_major(WeightData::F32(&matrix), outputs, depth);
            PackedWeights::pack(pool, self.isa, &view)
        };
        (0..SIDE * SIDE).map(matrix).collect()
    }
}

/// The weight of a product, from one kernel `[3, 3]`.
fn transformed(kernel: &[f32], down: [f64; KERNEL], right: [f64; KERNEL]) -> f32 {
    let row = |row: &[f32]| -> f64 {
        row.iter().zip(right).map(|(&element, factor)| f64::from(element) * factor).sum()
    };
    let rows = kernel.chunks_exact(KERNEL).zip(down);
    rows.map(|(elements, factor)| factor * row(elements)).sum::<f64>() as f32
}

impl Winograd {
    /// Whether a convolution can be computed this way and gains from it.
    pub(super) fn pays(op: &ops::Conv2d, site: &Site<'_>) -> bool {
        let (input, output) =
            (Image::new(&site.inputs[0].ty.shape), Image::new(&site.output.shape));
        let channels = LEAST_CHANNELS..=ZEROS.len();
        site.inputs[1].ty.shape[2..] == [KERNEL, KERNEL]
            && op.stride == [1, 1]
            && op.groups == 1
            && channels.contains(&input.channels)
            && output.channels >= LEAST_CHANNELS
            && output.height.is_multiple_of(2)
            && output.width.is_multiple_of(2)
            && output.rows() * output.width >= 4 * LEAST_BLOCKS
    }

    /// The kernel of such a convolution.
    pub(super) fn lower(op: &ops::Conv2d, site: &Site<'_>) -> Result<Lowered, CompileError> {
        let weight = Weight::new(Transformed { isa: site.arithmetic.isa }, site)?;
        let absorbed = weight.absorbed();
        let input = Image::new(&site.inputs[0].ty.shape);
        let output = Image::new(&site.output.shape);
        Ok(Lowered { kernel: Box::new(Winograd { op: *op, input, output, weight }), absorbed })
    }
}

impl Execute for Winograd {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weights = self.weight.get(&io)?;
        let blocks = Blocks {
            image: io.inputs.f32(0),
            strides: Strides::new(io.inputs.layout(0)),
            input: self.input,
            output: self.output,
            before: self.op.padding.map(|[before, _]| before),
        };
        let uses = uses();
        let terms = weights.iter().zip(&uses).map(|(weights, uses)| Term { weights, uses });
        let terms: Vec<Term<'_>> = terms.collect();
        let epilogue = Epilogue::new(&self.op.epilogue, &io.inputs, 2, self.output.channels);
        let image = Quarters { data: io.output.f32(), width: self.output.width };
        combined_gemm(io.pool, &blocks, &terms, &epilogue, image);
        Ok(())
    }
}

/// The contribution of each product to the four outputs of a block.
fn uses() -> Vec<Vec<Use>> {
    let mut begun = [false; 4];
    let products = (0..SIDE * SIDE).map(|product| {
        let signs =
            |output: usize| SIGNS[product / SIDE][output / 2] * SIGNS[product % SIDE][output % 2];
        let used = (0..4).filter(|&output| signs(output) != 0);
        used.map(|output| match (std::mem::replace(&mut begun[output], true), signs(output) > 0) {
            (false, positive) => {
                assert!(positive, "the first term of an output is added");
                Use::Overwrite(output)
            }
            (true, true) => Use::Add(output),
            (true, false) => Use::Subtract(output),
        })
        .collect()
    });
    products.collect()
}

/// The left operands: for each block of 2 by 2 outputs, row by row, the sums of its input pixels in every channel.
struct Blocks<'a> {
    image: &'a [f32],
    strides: Strides,
    input: Image,
    output: Image,
    /// Padding above and left of the image.
    before: [usize; 2],
}

impl LeftOperands for Blocks<'_> {
    fn rows(&self) -> usize {
        self.output.rows() * self.output.width / 4
    }

    fn depth(&self) -> usize {
        self.input.channels
    }

    fn fill(&self, isa: Isa, rows: Range<usize>, term_stride: usize, out: &mut [f32]) {
        dispatch(isa, Fill { blocks: self, rows, term_stride, out });
    }
}

impl Blocks<'_> {
    /// The channels of the 4 by 4 pixels that a block of outputs depends on.
    #[inline(always)]
    fn pixels(&self, block: usize) -> [[&[f32]; SIDE]; SIDE] {
        let width = self.output.width / 2;
        let (line, x) = (block / width, block % width);
        let (image, y) = (line / (self.output.height / 2), line % (self.output.height / 2));
        let inside = |position: usize, before: usize, length: usize| {
            position.checked_sub(before).filter(|&position| position < length)
        };
        let rows = [0, 1, 2, 3].map(|i| inside(2 * y + i, self.before[0], self.input.height));
        let columns = [0, 1, 2, 3].map(|i| inside(2 * x + i, self.before[1], self.input.width));
        rows.map(|row| columns.map(|column| self.pixel(image, row, column)))
    }

    /// The channels of a pixel; zeros outside the image.
    #[inline(always)]
    fn pixel(&self, image: usize, row: Option<usize>, column: Option<usize>) -> &[f32] {
        let channels = self.input.channels;
        match row.zip(column) {
            None => &ZEROS[..channels],
            Some((row, column)) => {
                let line = image * self.strides.image + row * self.strides.row;
                &self.image[line + column * self.strides.pixel..][..channels]
            }
        }
    }
}

/// Sums the pixels of some blocks.
struct Fill<'a> {
    blocks: &'a Blocks<'a>,
    rows: Range<usize>,
    term_stride: usize,
    out: &'a mut [f32],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.blocks.input.channels;
        for (row, block) in self.rows.enumerate() {
            let pixels = self.blocks.pixels(block);
            for start in (0..channels).step_by(S::LANES) {
                let count = S::LANES.min(channels - start);
                let load = |pixel: &[f32]| load_count(simd, &pixel[start..], count);
                let sums = combine(simd, pixels.map(|row| row.map(load)));
                for (term, &sum) in sums.as_flattened().iter().enumerate() {
                    let offset = term * self.term_stride + row * channels + start;
                    store_count(simd, sum, &mut self.out[offset..], count);
                }
            }
        }
    }
}

/// The sums of 4 by 4 pixels, along both directions.
#[inline(always)]
fn combine<S: Simd>(simd: S, pixels: [[S::F; SIDE]; SIDE]) -> [[S::F; SIDE]; SIDE] {
    let pair = |first: S::F, second: S::F, minus: bool| {
        if minus { simd.sub(first, second) } else { simd.add(first, second) }
    };
    let pixels = pixels.map(|row| PIXELS.map(|(a, b, minus)| pair(row[a], row[b], minus)));
    PIXELS.map(|(a, b, minus)| {
        let columns = [0, 1, 2, 3];
        columns.map(|column| pair(pixels[a][column], pixels[b][column], minus))
    })
}
