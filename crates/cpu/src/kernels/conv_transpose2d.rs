//! Transposed convolutions: products whose rows are scattered over the output, or a gather if kernels overlap.

use cutout_graph::{CompileError, RunError, ops};
use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError};

use crate::execute::{Execute, Io};
use crate::gemm::{Epilogue, GROUP_COLUMNS, Groups, Matrix, Output, RowMajor};
use crate::kernels::conv2d::{Form, Packing, Patches, TapPositions, Weight};
use crate::kernels::image::{Image, Strides};
use crate::lower::{Lowered, Site};

/// The kernel of a transposed convolution.
pub(crate) fn lower(op: &ops::ConvTranspose2d, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let shape = &site.inputs[1].ty.shape;
    let kernel = [shape[2], shape[3]];
    let input = Image::new(&site.inputs[0].ty.shape);
    let output = Image::new(&site.output.shape);
    let channels = input.channels;
    if kernel == op.stride && op.padding == [0, 0] {
        let columns = ByKernelRow::columns(shape);
        let packing = Packing::new(site, channels, [columns, channels]);
        let weight = Weight::new(ByKernelRow { packing }, site)?;
        let absorbed = weight.absorbed();
        let upscale = Upscale { epilogue: op.epilogue, kernel, input, output, weight };
        return Ok(Lowered { kernel: Box::new(upscale), absorbed });
    }
    let depth = channels * kernel[0] * kernel[1];
    let packing = Packing::new(site, channels, [output.channels, depth]);
    let weight = Weight::new(Gathered { packing }, site)?;
    let absorbed = weight.absorbed();
    let rows = TapPositions::transposed(op, 0, [input.height, output.height, kernel[0]]);
    let columns = TapPositions::transposed(op, 1, [input.width, output.width, kernel[1]]);
    let gather = Gather { epilogue: op.epilogue, input, output, weight, rows, columns };
    Ok(Lowered { kernel: Box::new(gather), absorbed })
}

/// Kernels that do not overlap (stride = kernel size): every input pixel becomes a block of the output. One product with a row
/// for each input pixel and its block in the columns, or one product for each kernel row if that row does not fill vectors.
struct Upscale {
    epilogue: ops::Epilogue,
    kernel: [usize; 2],
    input: Image,
    output: Image,
    weight: Weight<ByKernelRow>,
}

/// A weight `[inputs, outputs, kernel_height, kernel_width]` as a matrix `[kernel_width * outputs, inputs]` for each row of
/// the kernel; one matrix for all rows if they fill vectors.
struct ByKernelRow {
    packing: Packing,
}

impl ByKernelRow {
    /// Rows of the kernel in each matrix, for the shape of a weight.
    fn rows(weight: &[usize]) -> usize {
        if (weight[3] * weight[1]).is_multiple_of(GROUP_COLUMNS) { weight[2] } else { 1 }
    }

    /// Columns of the product with each matrix.
    fn columns(weight: &[usize]) -> usize {
        ByKernelRow::rows(weight) * weight[3] * weight[1]
    }
}

impl Form for ByKernelRow {
    type Packed = Vec<Matrix>;

    fn name(&self) -> String {
        format!("conv_transpose2d rows {}", self.packing.name())
    }

    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        let rows = ByKernelRow::rows(weight.shape());
        let columns = ByKernelRow::columns(weight.shape());
        (0..weight.shape()[2] / rows)
            .map(|part| {
                let own =
                    weight.slice(2, part * rows..(part + 1) * rows)?.permute(&[2, 3, 1, 0])?;
                self.packing.pack(pool, own, columns)
            })
            .collect()
    }
}

impl Execute for Upscale {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weights = self.weight.get(&io)?;
        let Image { width, channels, .. } = self.input;
        let rows = self.input.rows() * width;
        if rows == 0 {
            return Ok(());
        }
        let left = RowMajor::new(io.inputs.f32(0), rows, channels, channels);
        let output = io.output.f32();
        let line = self.output.row();
        let stride = self.kernel[1] * self.output.channels;
        // The outputs of two input rows are separated by those of the other kernel rows; kernel rows are a line apart.
        let row_groups = Groups { length: width, gap: (self.kernel[0] - 1) * line };
        let column_groups = Groups { length: stride, gap: line - stride };
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, 2, stride);
        let bias = epilogue.bias.map(|bias| bias.repeat(weights[0].outputs() / bias.len()));
        for (part, weight) in weights.iter().enumerate() {
            let first = part * weight.outputs() / stride * line;
            let epilogue = Epilogue { bias: bias.as_deref(), ..epilogue.shifted(first) };
            let output = Output::grouped(&mut output[first..], stride, row_groups, column_groups);
            weight.multiply(io.pool, &left, &epilogue, output);
        }
        Ok(())
    }
}

/// The general case: every output pixel gathers the inputs whose kernels cover it, as in a convolution. Kernel elements without
/// an input at a pixel are multiplied by zero.
struct Gather {
    epilogue: ops::Epilogue,
    input: Image,
    output: Image,
    weight: Weight<Gathered>,
    rows: TapPositions,
    columns: TapPositions,
}

/// A weight `[inputs, outputs, kernel_height, kernel_width]` as a matrix
/// `[outputs, kernel_height * kernel_width * inputs]`.
struct Gathered {
    packing: Packing,
}

impl Form for Gathered {
    type Packed = Matrix;

    fn name(&self) -> String {
        format!("conv_transpose2d {}", self.packing.name())
    }

    fn pack(&self, pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        self.packing.pack(pool, weight.permute(&[1, 2, 3, 0])?, weight.shape()[1])
    }
}

impl Execute for Gather {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weight = self.weight.get(&io)?;
        let patches = Patches {
            image: io.inputs.f32(0),
            strides: Strides::new(io.inputs.layout(0)),
            output: self.output,
            rows: &self.rows,
            columns: &self.columns,
            channels: self.input.channels,
        };
        let stride = self.output.channels;
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, 2, stride);
        weight.multiply(io.pool, &patches, &epilogue, Output::new(io.output.f32(), stride));
        Ok(())
    }
}
