//! Convolutions: products of image patches and weights; depthwise convolutions have a kernel of their own.

mod depthwise;
mod packing;
mod patches;
mod weights;
mod winograd;

use cutout_graph::{CompileError, RunError, ops};
use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError};

use self::depthwise::Depthwise;
pub(crate) use self::packing::Packing;
pub(crate) use self::patches::{Patches, TapPositions};
pub(crate) use self::weights::{Form, Weight};
use self::winograd::Winograd;
use crate::execute::{Execute, Io};
use crate::gemm::{Epilogue, LeftSource, Matrix, Output, RowMajor};
use crate::kernels::image::{Image, Strides};
use crate::lower::{Lowered, Site};

/// The kernel of a convolution.
pub(crate) fn lower(op: &ops::Conv2d, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let (input, output) = (site.inputs[0].ty.shape.last_axis(), site.output.shape.last_axis());
    if op.groups == input && op.groups == output && op.groups > 1 {
        return Depthwise::lower(op, site);
    }
    let weight = &site.inputs[1].ty.shape;
    let (channels, kernel) = (weight[1], weight[2] * weight[3]);
    let packing = Packing::new(site, channels, [output / op.groups, channels * kernel]);
    if packing.is_single() && Winograd::pays(op, site) {
        return Winograd::lower(op, site);
    }
    let weight = Weight::new(Dense { packing, groups: op.groups }, site)?;
    let absorbed = weight.absorbed();
    let kernel = Box::new(Convolution::new(op, site, weight));
    Ok(Lowered { kernel, absorbed })
}

/// A convolution as one product for each group.
struct Convolution {
    op: ops::Conv2d,
    input: Image,
    output: Image,
    weight: Weight<Dense>,
    rows: TapPositions,
    columns: TapPositions,
}

/// A weight `[outputs, inputs / groups, kernel_height, kernel_width]` packed with depths ordered
/// `[kernel_height, kernel_width, inputs / groups]`, the memory order of pixels; one matrix for each group.
struct Dense {
    packing: Packing,
    groups: usize,
}

impl Form for Dense {
    type Packed = Vec<Matrix>;

    fn name(&self) -> String {
        format!("conv2d {} {}", self.packing.name(), self.groups)
    }

    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        let outputs = weight.shape()[0] / self.groups;
        (0..self.groups)
            .map(|group| {
                let own = weight.slice(0, group * outputs..(group + 1) * outputs)?;
                self.packing.pack(pool, own.permute(&[0, 2, 3, 1])?, outputs)
            })
            .collect()
    }
}

impl Convolution {
    fn new(op: &ops::Conv2d, site: &Site<'_>, weight: Weight<Dense>) -> Self {
        let input = Image::new(&site.inputs[0].ty.shape);
        let output = Image::new(&site.output.shape);
        let &[_, _, height, width] = &site.inputs[1].ty.shape[..] else {
            panic!("inference checked the weight")
        };
        let rows = TapPositions::convolution(op, 0, [input.height, output.height, height]);
        let columns = TapPositions::convolution(op, 1, [input.width, output.width, width]);
        Convolution { op: *op, input, output, weight, rows, columns }
    }

    /// Whether each output pixel reads only the input pixel at the same position.
    fn is_pointwise(&self) -> bool {
        let kernel = [self.rows.kernel(), self.columns.kernel()];
        kernel == [1, 1] && self.op.stride == [1, 1] && self.op.padding == [[0; 2]; 2]
    }

    /// The left operand of the product of a group.
    fn left<'a>(&'a self, io: &Io<'a>, group: usize) -> Box<dyn LeftSource + 'a> {
        let (image, layout) = (io.inputs.f32(0), io.inputs.layout(0));
        if self.is_pointwise()
            && self.op.groups == 1
            && let Some((rows, stride)) = layout.as_rows()
        {
            return Box::new(RowMajor::new(image, rows, self.input.channels, stride));
        }
        let channels = self.input.channels / self.op.groups;
        Box::new(Patches {
            image: &image[(group * channels).min(image.len())..],
            strides: Strides::new(layout),
            output: self.output,
            rows: &self.rows,
            columns: &self.columns,
            channels,
        })
    }
}

impl Execute for Convolution {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weights = self.weight.get(&io)?;
        let stride = self.output.channels;
        let epilogue = Epilogue::new(&self.op.epilogue, &io.inputs, 2, stride);
        if self.output.batch == 0 {
            return Ok(());
        }
        let lefts: Vec<_> = (0..weights.len()).map(|group| self.left(&io, group)).collect();
        let output = io.output.f32();
        for (group, (left, weight)) in lefts.iter().zip(&*weights).enumerate() {
            let first = group * weight.outputs();
            let bias = epilogue.bias.map(|bias| &bias[first..first + weight.outputs()]);
            let epilogue = Epilogue { bias, ..epilogue.shifted(first) };
            let output = Output::new(&mut output[first..], stride);
            weight.multiply(io.pool, &**left, &epilogue, output);
        }
        Ok(())
    }
}
