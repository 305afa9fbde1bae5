//! Ops on channel-last images.

use bytemuck::Zeroable;
use cutout_graph::CompileError;
use cutout_graph::ops::{
    BilinearTap, Conv2d, ConvTranspose2d, Epilogue, MaskBits, MaxPool2d, Resize, ResizeMode,
    RoiAlign, Tap,
};
use cutout_tensor::DType;

use super::hopper;
use super::movement::converted;
use super::parameters::{self, Conv, Patches, Shuffle, code};
use super::product::{
    Finish, RowsOf, WeightMatrix, half_rows, rows_of, takes_tensor_cores, with_weight,
};
use super::{Input, Site};
use crate::fast::convolution::Taps;
use crate::launch::{Argument, Place};
use crate::weights::Form;

/// Bytes of scratch memory for patches; larger images are done in parts.
const MOST_PATCH_BYTES: usize = 512 << 20;

/// `[batch, height, width, channels]`.
fn image(input: &Input) -> [usize; 4] {
    std::array::from_fn(|axis| input.ty.shape.get(axis).copied().unwrap_or(1))
}

fn is_whole_weight(weight: &Input) -> bool {
    weight.place.region == crate::launch::Region::Weight(usize::MAX)
}

pub(crate) fn conv2d(op: &Conv2d, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let (x, weight) = (site.inputs[0].clone(), site.inputs[1].clone());
    let finish = Finish::of(op.epilogue, 2, site);
    let kernel = [weight.ty.shape[2], weight.ty.shape[3]];
    let Some(node) = weight.node.filter(|_| is_whole_weight(&weight)) else {
        let parameters = conv_parameters(op, &x, &weight, &finish, site)?;
        return direct(("conv_direct", parameters), &x, weight.place, &finish, site);
    };
    if op.groups > 1 {
        let taps = site.weight(node, Form::ConvTaps);
        let parameters = conv_parameters(op, &x, &weight, &finish, site)?;
        let each = parameters.depth == 1 && parameters.per_group == 1;
        let aligned = x.place.offset.is_multiple_of(4 * x.stored.size());
        let fours = parameters.channels.is_multiple_of(4) && aligned;
        let kernel = if each && fours { "conv_depthwise" } else { "conv_packed" };
        return direct((kernel, parameters), &x, taps, &finish, site);
    }
    let columns = weight.ty.shape[0];
    let form = |dtype, padded| Form::ConvMatrix { dtype, padded };
    let weight = WeightMatrix { node, columns, form: &form };
    let pointwise = kernel == [1, 1] && op.stride == [1, 1] && op.padding == [[0; 2]; 2];
    if pointwise {
        let rows = half_rows(&x, site)?;
        return with_weight(rows, &weight, &finish, site);
    }
    by_patches((op, kernel), &x, &weight, &finish, site)
}

fn conv_parameters(
    op: &Conv2d,
    x: &Input,
    weight: &Input,
    finish: &Finish,
    site: &Site<'_, '_>,
) -> Result<Conv, CompileError> {
    let [_, height, width, channels] = image(x);
    let shape = &site.ty.shape;
    let outputs = shape[3];
    let mut conv = Conv::zeroed();
    conv.total = site.count(shape.elements())?;
    [conv.height, conv.width] = [site.count(height)?, site.count(width)?];
    [conv.channels, conv.outputs] = [site.count(channels)?, site.count(outputs)?];
    [conv.out_height, conv.out_width] = [site.count(shape[1])?, site.count(shape[2])?];
    conv.kernel_height = site.count(weight.ty.shape[2])?;
    conv.kernel_width = site.count(weight.ty.shape[3])?;
    [conv.stride_y, conv.stride_x] = [site.count(op.stride[0])?, site.count(op.stride[1])?];
    [conv.before_y, conv.before_x] = [site.count(op.padding[0][0])?, site.count(op.padding[1][0])?];
    conv.depth = site.count(channels / op.groups)?;
    conv.per_group = site.count(outputs / op.groups)?;
    conv.from = code(x.stored);
    conv.epilogue = finish.parameters();
    Ok(conv)
}

fn direct(
    (kernel, parameters): (&'static str, Conv),
    x: &Input,
    weight: Place,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let [bias, residual] = finish.arguments();
    let arguments = vec![
        x.read(),
        Argument::Read(weight),
        bias,
        residual,
        Argument::Write(finish.output),
        Argument::of(&parameters),
    ];
    let each = if kernel == "conv_depthwise" { 4 } else { 1 };
    site.launch_each(kernel, parameters.total / each, arguments);
    Ok(())
}

/// The patches under the kernel as rows, then a product with the weight.
fn by_patches(
    (op, kernel): (&Conv2d, [usize; 2]),
    x: &Input,
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    if kernel == [3, 3]
        && op.stride == [1, 1]
        && op.padding == [[1, 1]; 2]
        && by_three(x, weight, finish, site)?
    {
        return Ok(());
    }
    let [_, height, width, channels] = image(x);
    let stored = site.half.unwrap_or(DType::F32);
    let depth = kernel[0] * kernel[1] * channels;
    let padded = if stored == DType::F32 { depth } else { depth.next_multiple_of(8) };
    let shape = site.ty.shape.clone();
    let pixels = shape[0] * shape[1] * shape[2];
    let most = (MOST_PATCH_BYTES / (padded * stored.size()).max(1)).max(1);
    let part = pixels.div_ceil(pixels.div_ceil(most)).next_multiple_of(128).min(pixels);
    let scratch = site.scratch(part * padded * stored.size());
    let four = channels.is_multiple_of(4)
        && padded.is_multiple_of(4)
        && x.place.offset.is_multiple_of(4 * x.stored.size());
    let group = if four { 4 } else { 1 };
    for first in (0..pixels).step_by(part) {
        let count = part.min(pixels - first);
        let parameters = Patches {
            total: site.count(count * padded / group)?,
            height: site.count(height)?,
            width: site.count(width)?,
            channels: site.count(channels)?,
            out_height: site.count(shape[1])?,
            out_width: site.count(shape[2])?,
            kernel_width: site.count(kernel[1])?,
            stride_y: site.count(op.stride[0])?,
            stride_x: site.count(op.stride[1])?,
            before_y: site.count(op.padding[0][0])?,
            before_x: site.count(op.padding[1][0])?,
            depth: site.count(depth)?,
            padded: site.count(padded)?,
            from: code(x.stored),
            to: code(stored),
            group: site.count(group)?,
            first: site.count(first)?,
        };
        let arguments = vec![x.read(), Argument::Write(scratch), Argument::of(&parameters)];
        site.launch_each("patches", parameters.total, arguments);
        let rows = RowsOf { place: scratch, stored, rows: count, depth: padded, stride: padded };
        let finish = finish.rows_from(first, weight.columns);
        with_weight(rows, weight, &finish, site)?;
    }
    Ok(())
}

/// A 3 × 3 convolution without patches; false if no kernel takes it.
fn by_three(
    x: &Input,
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<bool, CompileError> {
    let Some(half) = site.half else { return Ok(false) };
    let before = site.launches.len();
    let pixels = if x.stored == half { x.clone() } else { converted(x, half, site)? };
    let depth = 9 * image(x)[3];
    let place = site.weight(weight.node, (weight.form)(half, depth));
    let taken =
        hopper::convolve(&pixels, Taps::Three, (place, [weight.columns, depth]), finish, site);
    if !taken {
        site.launches.truncate(before);
    }
    Ok(taken)
}

/// A transposed 2 × 2 convolution that writes its pixels itself; false if no kernel takes it.
fn upscaled(
    x: &Input,
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<bool, CompileError> {
    let Some(half) = site.half else { return Ok(false) };
    let bias = match finish.bias {
        None => None,
        // One bias for each of the four pixels.
        Some(_) => match site.inputs[2].node {
            Some(node) => Some(site.weight(node, Form::Repeated(4))),
            None => return Ok(false),
        },
    };
    let before = site.launches.len();
    let pixels = if x.stored == half { x.clone() } else { converted(x, half, site)? };
    let depth = image(x)[3];
    let place = site.weight(weight.node, (weight.form)(half, depth));
    let finish = Finish { bias, ..*finish };
    let taken =
        hopper::convolve(&pixels, Taps::Upscale, (place, [weight.columns, depth]), &finish, site);
    if !taken {
        site.launches.truncate(before);
    }
    Ok(taken)
}

impl Finish {
    /// The same for the rows from `first` on, of `columns` elements each.
    fn rows_from(&self, first: usize, columns: usize) -> Finish {
        let elements = first * columns;
        Finish {
            epilogue: self.epilogue,
            bias: self.bias,
            residual: self
                .residual
                .map(|(place, stored)| (place.from(elements * stored.size()), stored)),
            output: self.output.from(elements * self.to.size()),
            to: self.to,
            shuffle: None,
        }
    }
}

pub(crate) fn conv_transpose2d(
    op: &ConvTranspose2d,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let (x, weight) = (site.inputs[0].clone(), site.inputs[1].clone());
    let finish = Finish::of(op.epilogue, 2, site);
    let (outputs, kernel) = (weight.ty.shape[1], [weight.ty.shape[2], weight.ty.shape[3]]);
    let apart = op.stride == kernel && op.padding == [0, 0];
    match weight.node.filter(|_| is_whole_weight(&weight)) {
        Some(node) if apart => {
            let columns = kernel[0] * kernel[1] * outputs;
            let form = |dtype, padded| Form::TransposedMatrix { dtype, padded };
            let weight = WeightMatrix { node, columns, form: &form };
            shuffled(&x, kernel, &weight, &finish, site)
        }
        node => {
            let place = match node {
                Some(node) => site.weight(node, Form::Plain(DType::F32)),
                None => weight.place,
            };
            let as_conv = Conv2d {
                stride: op.stride,
                padding: op.padding.map(|padding| [padding; 2]),
                groups: 1,
                epilogue: Epilogue::NONE,
            };
            let parameters = conv_parameters(&as_conv, &x, &weight, &finish, site)?;
            direct(("conv_transpose", parameters), &x, place, &finish, site)
        }
    }
}

/// Kernels that do not overlap: one product, whose columns are then laid out as pixels.
fn shuffled(
    x: &Input,
    kernel: [usize; 2],
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    if kernel == [2, 2] && upscaled(x, weight, finish, site)? {
        return Ok(());
    }
    let [batch, height, width, _] = image(x);
    let rows = if site.half.is_some() { half_rows(x, site)? } else { rows_of(x, site)? };
    let single = site.half.is_none() || rows.stored == DType::F32;
    if kernel == [2, 2] && single && takes_tensor_cores(&rows, weight.columns, site) {
        let shuffle = Some([width, site.ty.shape[3]]);
        return with_weight(rows, weight, &Finish { shuffle, ..*finish }, site);
    }
    let scratch = site.scratch(rows.rows * weight.columns * 4);
    let plain = Finish {
        epilogue: Epilogue::NONE,
        bias: None,
        residual: None,
        output: scratch,
        to: DType::F32,
        shuffle: None,
    };
    with_weight(rows, weight, &plain, site)?;
    let total = site.count(batch * height * width * weight.columns)?;
    let parameters = Shuffle {
        total,
        height: site.count(height)?,
        width: site.count(width)?,
        outputs: site.count(site.ty.shape[3])?,
        kernel_height: site.count(kernel[0])?,
        kernel_width: site.count(kernel[1])?,
        from: code(DType::F32),
        unused: 0,
        epilogue: finish.parameters(),
    };
    let [bias, residual] = finish.arguments();
    let arguments = vec![
        Argument::Read(scratch),
        bias,
        residual,
        Argument::Write(finish.output),
        Argument::of(&parameters),
    ];
    site.launch_each("pixel_shuffle", total, arguments);
    Ok(())
}

pub(crate) fn max_pool(op: &MaxPool2d, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let x = site.inputs[0].clone();
    let [_, height, width, channels] = image(&x);
    let pair = |values: [usize; 2], site: &Site<'_, '_>| -> Result<[u32; 2], CompileError> {
        Ok([site.count(values[0])?, site.count(values[1])?])
    };
    let parameters = parameters::Pool {
        total: site.count(site.ty.shape.elements())?,
        height: site.count(height)?,
        width: site.count(width)?,
        channels: site.count(channels)?,
        out_height: site.count(site.ty.shape[1])?,
        out_width: site.count(site.ty.shape[2])?,
        kernel: pair(op.kernel, site)?,
        stride: pair(op.stride, site)?,
        padding: pair(op.padding, site)?,
        from: code(x.stored),
        to: code(site.stored),
    };
    let arguments = vec![x.read(), site.write(), Argument::of(&parameters)];
    site.launch_each("max_pool", parameters.total, arguments);
    Ok(())
}

/// Taps of every position as one table, each position with equally many; also how many.
fn tap_table(taps: &[Vec<Tap>], mode: ResizeMode) -> (Vec<u8>, usize) {
    let most = taps.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut bytes = Vec::with_capacity(taps.len() * most * 8);
    for position in taps {
        for index in 0..most {
            let none = parameters::Tap { at: 0, weight: 0.0 };
            let tap = position.get(index).map_or(none, |&(at, weight)| parameters::Tap {
                at: u32::try_from(at).unwrap_or(0),
                weight: if mode == ResizeMode::Nearest { 1.0 } else { weight as f32 },
            });
            bytes.extend_from_slice(bytemuck::bytes_of(&tap));
        }
    }
    (bytes, most)
}

pub(crate) fn resize(op: &Resize, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let x = site.inputs[0].clone();
    let [_, height, width, channels] = image(&x);
    let places = [(x.place, x.stored), (site.output, site.stored)];
    let aligned = |(place, stored): (Place, DType)| place.offset.is_multiple_of(4 * stored.size());
    let floats = [DType::F32, DType::F16, DType::BF16];
    let wide = channels.is_multiple_of(4)
        && places.into_iter().all(|place| aligned(place) && floats.contains(&place.1));
    let (rows, row_taps) = tap_table(&op.taps(height, op.size[0]), op.mode);
    let (columns, column_taps) = tap_table(&op.taps(width, op.size[1]), op.mode);
    let (rows, columns) = (site.table(rows), site.table(columns));
    let parameters = parameters::Resize {
        total: site.count(site.ty.shape.elements())?,
        height: site.count(height)?,
        width: site.count(width)?,
        channels: site.count(channels)?,
        out_height: site.count(op.size[0])?,
        out_width: site.count(op.size[1])?,
        row_taps: site.count(row_taps)?,
        column_taps: site.count(column_taps)?,
        from: code(x.stored),
        to: code(site.stored),
        wide: u32::from(wide),
    };
    let arguments = vec![
        x.read(),
        Argument::Read(rows),
        Argument::Read(columns),
        site.write(),
        Argument::of(&parameters),
    ];
    let threads = if wide { parameters.total / 4 } else { parameters.total };
    site.launch_each("resize", threads, arguments);
    Ok(())
}

pub(crate) fn grid_sample(site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let (x, grid) = (site.inputs[0].clone(), site.inputs[1].clone());
    let [_, height, width, channels] = image(&x);
    let points = site.ty.shape[1] * site.ty.shape[2];
    let parameters = parameters::Sample {
        total: site.count(site.ty.shape.elements())?,
        height: site.count(height)?,
        width: site.count(width)?,
        channels: site.count(channels)?,
        points: site.count(points)?,
        from: code(x.stored),
        grid: code(grid.stored),
        to: code(site.stored),
    };
    let arguments = vec![x.read(), grid.read(), site.write(), Argument::of(&parameters)];
    site.launch_each("grid_sample", parameters.total, arguments);
    Ok(())
}

pub(crate) fn roi_align(op: &RoiAlign, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let (x, boxes) = (site.inputs[0].clone(), site.inputs[1].clone());
    let [batch, height, width, channels] = image(&x);
    let parameters = parameters::Roi {
        total: site.count(site.ty.shape.elements())?,
        batch: site.count(batch)?,
        height: site.count(height)?,
        width: site.count(width)?,
        channels: site.count(channels)?,
        rows: site.count(op.output[0])?,
        columns: site.count(op.output[1])?,
        ratio: site.count(op.sampling_ratio)?,
        aligned: u32::from(op.aligned),
        step: site.number(),
        scale: op.spatial_scale,
        from: code(x.stored),
        boxes: code(boxes.stored),
        to: code(site.stored),
    };
    let problem = site.problem();
    let arguments = vec![x.read(), boxes.read(), site.write(), problem, Argument::of(&parameters)];
    site.launch_each("roi_align", parameters.total, arguments);
    Ok(())
}

/// The taps of one direction as a table.
fn bit_taps(taps: &[BilinearTap], site: &mut Site<'_, '_>) -> Result<Argument, CompileError> {
    let mut bytes = Vec::with_capacity(taps.len() * size_of::<parameters::BitTap>());
    for tap in taps {
        let tap = parameters::BitTap {
            first: site.count(tap.first)?,
            second: site.count(tap.second)?,
            weight: tap.weight,
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&tap));
    }
    Ok(Argument::Read(site.table(bytes)))
}

pub(crate) fn mask_bits(op: &MaskBits, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let x = site.inputs[0].clone();
    let [masks, low_height, low_width] = [x.ty.shape[0], x.ty.shape[1], x.ty.shape[2]];
    let (words, groups) = (op.words(), op.size[1].div_ceil(32));
    let [sure, possible, threshold] = op.thresholds();
    let threads = [words, groups, 32].iter().try_fold(masks, |product, &n| product.checked_mul(n));
    let parameters = parameters::MaskBits {
        total: site.count(threads.unwrap_or(usize::MAX))?,
        height: site.count(op.size[0])?,
        width: site.count(op.size[1])?,
        words: site.count(words)?,
        low_height: site.count(low_height)?,
        low_width: site.count(low_width)?,
        groups: site.count(groups)?,
        from: code(x.stored),
        sure,
        possible,
        threshold,
    };
    let (masks, length) = (site.count(masks)?, site.count(site.ty.shape[1])?);
    let clear = vec![site.write(), Argument::of(&masks), Argument::of(&length)];
    site.launch_each("mask_bits_clear", site.count(2 * masks as usize)?, clear);
    let mut tables = Vec::new();
    for stage in op.stages([low_height, low_width]).iter().rev() {
        tables.push(bit_taps(&stage.rows, site)?);
        tables.push(bit_taps(&stage.columns, site)?);
    }
    tables.resize(4, Argument::Null);
    let mut arguments = vec![x.read()];
    arguments.extend(tables);
    arguments.extend([site.write(), Argument::of(&parameters)]);
    site.launch_each("mask_bits", parameters.total, arguments);
    Ok(())
}
