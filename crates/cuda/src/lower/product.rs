//! Matrix products: linear layers and products of two values.

use cutout_graph::CompileError;
use cutout_graph::ops::{Activation, Epilogue, Linear, MatMul};
use cutout_tensor::DType;

use super::hopper;
use super::movement::{converted, too_many_axes};
use super::parameters::{self, Axes, Gemm, Product, SumParts, Walk, code, walk};
use super::split;
use super::tensor_cores::{Parts, TensorCores, parts, tensor_cores};
use super::{Input, Site};
use crate::launch::{Argument, Place};
use crate::weights::Form;

/// At most this many rows go to the kernel that reads the weight once for every eight of them.
const FEW_ROWS: usize = 32;

/// The same where tiles of 64 x 64 would leave most of the card idle.
const FEW_TILES_ROWS: usize = 256;

/// Up to this depth, a thread computes four columns of a row.
const THIN_DEPTH: usize = 4;

/// From this depth on, the warps of a block share a column.
const SPLIT_DEPTH: usize = 512;

/// From this many tiles of 128 x 128 on, the larger tiles fill the card.
pub(super) const LARGE_TILES: usize = 200;

/// What is done with the sums, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) epilogue: Epilogue,
    pub(crate) bias: Option<Place>,
    pub(crate) residual: Option<(Place, DType)>,
    pub(crate) output: Place,
    pub(crate) to: DType,
    /// Pixels of a line and outputs, for products of a transposed convolution by 2 x 2: [`tensor_cores`] alone lays them out.
    pub(crate) shuffle: Option<[usize; 2]>,
}

impl Finish {
    /// The epilogue of a site whose extra inputs begin at `first`, with all of its output.
    pub(crate) fn of(epilogue: Epilogue, first: usize, site: &Site<'_, '_>) -> Finish {
        let bias = epilogue.bias.then(|| site.inputs[first].place);
        let residual = &site.inputs.get(first + usize::from(epilogue.bias));
        let residual = residual.filter(|_| epilogue.residual);
        Finish {
            epilogue,
            bias,
            residual: residual.map(|input| (input.place, input.stored)),
            output: site.output,
            to: site.stored,
            shuffle: None,
        }
    }

    fn bias_argument(&self) -> Argument {
        self.bias.map_or(Argument::Null, Argument::Read)
    }

    fn residual_argument(&self) -> Argument {
        self.residual.map_or(Argument::Null, |(place, _)| Argument::Read(place))
    }

    pub(crate) fn parameters(&self) -> parameters::Epilogue {
        parameters::Epilogue {
            scale: self.epilogue.scale,
            activation: activation(self.epilogue.activation),
            residual: self.residual.map_or(0, |(_, stored)| code(stored)),
            to: code(self.to),
        }
    }

    /// Whether output and residual can be read and written four elements at a time.
    fn is_aligned(&self) -> bool {
        let written = std::iter::once((self.output, self.to)).chain(self.residual);
        written.into_iter().all(|(place, stored)| place.offset.is_multiple_of(4 * stored.size()))
    }

    /// Pointers to bias and residual, as kernels take them.
    pub(crate) fn arguments(&self) -> [Argument; 2] {
        [self.bias_argument(), self.residual_argument()]
    }
}

/// Number of an activation in kernels.
pub(crate) fn activation(activation: Activation) -> i32 {
    match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Gelu => 2,
        Activation::Sigmoid => 3,
    }
}

/// One side of a product: element `(row, k)` at `row * row_stride + k * depth_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) place: Place,
    pub(crate) stored: DType,
    pub(crate) row: usize,
    pub(crate) depth: usize,
    /// First element of each matrix.
    pub(crate) batch: Walk,
}

/// Lengths of a product.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) batch: usize,
}

impl Side {
    /// Whether rows are f32 and can be read four elements at a time.
    pub(super) fn is_wide(&self) -> bool {
        let batches = self.batch.strides.iter().all(|stride| stride % 4 == 0);
        let aligned = self.place.offset.is_multiple_of(16) && self.row.is_multiple_of(4);
        self.stored == DType::F32 && self.depth == 1 && aligned && batches
    }
}

/// Whether [`product_f32`] would use the tensor cores for rows with a weight.
pub(crate) fn takes_tensor_cores(a: &RowsOf, columns: usize, site: &Site<'_, '_>) -> bool {
    let sizes = Sizes { rows: a.rows, columns, depth: a.depth, batch: 1 };
    let multiprocessors = site.target().multiprocessors;
    let (a, b) = (a.side(), weight_side(a.place, a.depth));
    sizes.depth > THIN_DEPTH
        && !takes_few_rows(sizes, b, multiprocessors)
        && tensor_cores(sizes, a, b, multiprocessors).is_some()
}

/// A weight `[columns, depth]`. Weights start at multiples of 256 bytes.
fn weight_side(place: Place, depth: usize) -> Side {
    let place = Place { offset: 0, ..place };
    Side { place, stored: DType::F32, row: depth, depth: 1, batch: one_matrix() }
}

/// Whether a product goes to the kernel for few rows.
fn takes_few_rows(sizes: Sizes, b: Side, multiprocessors: usize) -> bool {
    let tiles = sizes.rows.div_ceil(64) * sizes.columns.div_ceil(64) * sizes.batch;
    let idle = 2 * tiles < multiprocessors && sizes.rows <= FEW_TILES_ROWS;
    b.depth == 1 && (sizes.rows <= FEW_ROWS || idle)
}

/// The walk of a single matrix.
pub(super) fn one_matrix() -> Walk {
    bytemuck::Zeroable::zeroed()
}

/// Multiplies parts of the depth, as if they were matrices, and sums them.
fn product_in_parts(
    Parts { kernel, count }: Parts,
    (sizes, a, b): (Sizes, Side, Side),
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let depth = sizes.depth / count;
    let batch = walk(&[count], &[depth]).ok_or_else(|| too_many_axes(site, 1))?;
    let part = |side: Side| Side { batch, ..side };
    let elements = sizes.rows * sizes.columns;
    let partial = site.scratch(count * elements * DType::F32.size());
    let plain = Finish {
        epilogue: Epilogue::NONE,
        bias: None,
        residual: None,
        output: partial,
        to: DType::F32,
        shuffle: None,
    };
    let of_parts = Sizes { depth, batch: count, ..sizes };
    launch_product((of_parts, part(a), part(b)), Some(kernel), &plain, site)?;
    let parameters::Epilogue { scale, activation, residual, to } = finish.parameters();
    let elements = site.count(elements)?;
    let [columns, parts] = [site.count(sizes.columns)?, site.count(count)?];
    let parameters = SumParts { elements, columns, parts, scale, activation, residual, to };
    let [bias, residual] = finish.arguments();
    let output = Argument::Write(finish.output);
    let arguments =
        vec![Argument::Read(partial), bias, residual, output, Argument::of(&parameters)];
    site.launch_each("sum_parts", elements / 4, arguments);
    Ok(())
}

/// A product in f32.
pub(crate) fn product_f32(
    sizes: Sizes,
    a: Side,
    b: Side,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let multiprocessors = site.target().multiprocessors;
    if let Some(parts) = parts(sizes, a, b, multiprocessors)
        && finish.is_aligned()
        && finish.shuffle.is_none()
    {
        return product_in_parts(parts, (sizes, a, b), finish, site);
    }
    let few = takes_few_rows(sizes, b, multiprocessors);
    let fast = tensor_cores(sizes, a, b, multiprocessors);
    let fast = fast.filter(|_| !few || sizes.rows <= 16);
    launch_product((sizes, a, b), fast, finish, site)
}

/// A product in f32 on the tensor cores by a kernel that takes it, or on the ordinary units.
fn launch_product(
    (sizes, a, b): (Sizes, Side, Side),
    fast: Option<TensorCores>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let [rows, columns, batch] =
        [site.count(sizes.rows)?, site.count(sizes.columns)?, site.count(sizes.batch)?];
    let epilogue = finish.parameters();
    let few = takes_few_rows(sizes, b, site.target().multiprocessors);
    let split = few && sizes.depth >= SPLIT_DEPTH;
    let wide = a.is_wide() && b.is_wide() && sizes.depth.is_multiple_of(4);
    let [shuffle_width, shuffle_outputs] = finish.shuffle.unwrap_or_default();
    let few_rows = u32::from(split) | u32::from(wide) << 1 | u32::from(finish.is_aligned()) << 2;
    let parameters = Product {
        rows,
        columns,
        depth: site.count(sizes.depth)?,
        few_rows,
        a_row: a.row as i64,
        a_depth: a.depth as i64,
        b_column: b.row as i64,
        b_depth: b.depth as i64,
        a_stored: code(a.stored),
        b_stored: code(b.stored),
        residual: epilogue.residual,
        to: epilogue.to,
        scale: epilogue.scale,
        activation: epilogue.activation,
        a_batch: a.batch,
        b_batch: b.batch,
        shuffle_width: site.count(shuffle_width)?,
        shuffle_outputs: site.count(shuffle_outputs)?,
    };
    let [bias, residual] = finish.arguments();
    let arguments = vec![
        Argument::Read(a.place),
        Argument::Read(b.place),
        bias,
        residual,
        Argument::Write(finish.output),
        Argument::of(&parameters),
    ];
    if batch > 65535 {
        return Err(site.unsupported(format!("{batch} matrices are too many for one launch")));
    }
    if sizes.depth <= THIN_DEPTH && sizes.rows > FEW_ROWS {
        let threads = sizes.rows * sizes.columns.div_ceil(4);
        let grid = [site.count(threads)?.div_ceil(256), 1, batch];
        site.launch("product_thin", grid, 256, arguments);
        return Ok(());
    }
    let tiles = |side: u32| [columns.div_ceil(side), rows.div_ceil(side), batch];
    let large = tiles(128).iter().map(|&count| count as usize).product::<usize>();
    if let Some(TensorCores { name, tile: [height, width], block, stages }) = fast {
        let grid = [columns.div_ceil(width), rows.div_ceil(height), batch];
        site.launch(name, grid, block, arguments);
        if let Some(last) = site.launches.last_mut() {
            last.shared_bytes = stages * (height + width) * 128;
        }
    } else if few {
        let blocks = if split { columns } else { columns.div_ceil(4) };
        site.launch("product_few_rows", [blocks, rows.div_ceil(8), batch], 128, arguments);
    } else if large >= LARGE_TILES {
        site.launch("product_128", tiles(128), 256, arguments);
    } else {
        site.launch("product_64", tiles(64), 256, arguments);
    }
    Ok(())
}

/// Rows of an activation, `[rows, depth]` with one stride between rows.
#[derive(Clone, Copy)]
pub(crate) struct RowsOf {
    pub(crate) place: Place,
    pub(crate) stored: DType,
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) stride: usize,
}

impl RowsOf {
    fn side(&self) -> Side {
        let RowsOf { place, stored, stride: row, .. } = *self;
        Side { place, stored, row, depth: 1, batch: one_matrix() }
    }
}

/// The weight of a product: columns, elements of a row behind padding, and how to get it in an element type.
pub(crate) struct WeightMatrix<'f> {
    pub(crate) node: cutout_graph::NodeId,
    pub(crate) columns: usize,
    pub(crate) form: &'f dyn Fn(DType, usize) -> Form,
}

/// A product of rows with a weight, in half precision where the node asks for it and the shape allows it.
pub(crate) fn with_weight(
    a: RowsOf,
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let sizes = Sizes { rows: a.rows, columns: weight.columns, depth: a.depth, batch: 1 };
    if let Some(half) = site.half
        && a.stored == half
        && is_aligned(&a)
        && a.depth > 0
    {
        let padded = a.depth.next_multiple_of(8);
        let place = site.weight(weight.node, (weight.form)(half, padded));
        return product_half(sizes, a, (place, padded), finish, site);
    }
    if split::with_weight(a, weight, finish, site) {
        return Ok(());
    }
    let place = site.weight(weight.node, (weight.form)(DType::F32, a.depth));
    product_f32(sizes, a.side(), weight_side(place, a.depth), finish, site)
}

/// Whether rows can be copied 16 bytes at a time: whole groups of eight halves.
fn is_aligned(a: &RowsOf) -> bool {
    a.stride.is_multiple_of(8) && a.place.offset.is_multiple_of(16) && a.depth.is_multiple_of(8)
}

/// A product of halves with f32 sums on the tensor cores.
fn product_half(
    sizes: Sizes,
    a: RowsOf,
    (weight, padded): (Place, usize),
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    if padded == a.depth && hopper::product_half(a, (weight, sizes.columns), finish, site) {
        return Ok(());
    }
    let epilogue = finish.parameters();
    let [rows, columns] = [site.count(sizes.rows)?, site.count(sizes.columns)?];
    let parameters = Gemm {
        rows,
        columns,
        depth: site.count(sizes.depth)?,
        a_row: site.count(a.stride)?,
        b_column: site.count(padded)?,
        scale: epilogue.scale,
        activation: epilogue.activation,
        residual: epilogue.residual,
        to: epilogue.to,
        unused: 0,
    };
    let [bias, residual] = finish.arguments();
    let arguments = vec![
        Argument::Read(a.place),
        Argument::Read(weight),
        bias,
        residual,
        Argument::Write(finish.output),
        Argument::of(&parameters),
    ];
    let tiles = |height: u32, width: u32| rows.div_ceil(height) * columns.div_ceil(width);
    let large = tiles(128, 128) as usize >= site.target().multiprocessors;
    let (kernel, height, width, shared) = match (a.stored, large) {
        (DType::BF16, true) => ("gemm_bf16_128x128", 128, 128, 4 * 2 * 128 * 64),
        (DType::BF16, false) => ("gemm_bf16_64x64", 64, 64, 4 * 2 * 64 * 64),
        (_, true) => ("gemm_f16_128x128", 128, 128, 4 * 2 * 128 * 64),
        (_, false) => ("gemm_f16_64x64", 64, 64, 4 * 2 * 64 * 64),
    };
    let grid = [columns.div_ceil(width), rows.div_ceil(height), 1];
    let block = if large { 256 } else { 128 };
    site.launch(kernel, grid, block, arguments);
    if let Some(last) = site.launches.last_mut() {
        last.shared_bytes = shared;
    }
    Ok(())
}

/// The rows of a value that has one stride between them.
pub(crate) fn rows_of(input: &Input, site: &Site<'_, '_>) -> Result<RowsOf, CompileError> {
    let Some((rows, stride)) = input.layout().as_rows() else {
        return Err(site.unsupported("rows with several strides".to_owned()));
    };
    let depth = input.ty.shape.last_axis();
    Ok(RowsOf { place: input.place, stored: input.stored, rows, depth, stride })
}

/// Rows in the half precision type of the site, converted if they are stored otherwise.
pub(crate) fn half_rows(input: &Input, site: &mut Site<'_, '_>) -> Result<RowsOf, CompileError> {
    let rows = rows_of(input, site)?;
    let Some(half) = site.half else { return Ok(rows) };
    if (rows.stored == half && is_aligned(&rows))
        || !rows.depth.is_multiple_of(8)
        || rows.depth == 0
    {
        return Ok(rows);
    }
    let input = converted(input, half, site)?;
    rows_of(&input, site)
}

pub(crate) fn linear(op: &Linear, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let (x, weight) = (site.inputs[0].clone(), site.inputs[1].clone());
    let finish = Finish::of(op.epilogue, 2, site);
    let columns = weight.ty.shape[0];
    let whole = weight.place.region == crate::launch::Region::Weight(usize::MAX);
    if let Some(node) = weight.node.filter(|_| whole) {
        let rows = half_rows(&x, site)?;
        let form = |dtype, padded| Form::Matrix { dtype, padded };
        return with_weight(rows, &WeightMatrix { node, columns, form: &form }, &finish, site);
    }
    let rows = rows_of(&x, site)?;
    let sizes = Sizes { rows: rows.rows, columns, depth: rows.depth, batch: 1 };
    let a =
        Side { place: x.place, stored: x.stored, row: rows.stride, depth: 1, batch: one_matrix() };
    let (row, depth) = (weight.strides[0], weight.strides[1]);
    let b = Side { place: weight.place, stored: weight.stored, row, depth, batch: one_matrix() };
    product_f32(sizes, a, b, &finish, site)
}

pub(crate) fn matmul(op: &MatMul, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let (a, b) = (site.inputs[0].clone(), site.inputs[1].clone());
    let finish = Finish::of(op.epilogue, 2, site);
    let rank = site.ty.rank();
    let batch_shape = site.ty.shape[..rank - 2].to_vec();
    let batch_strides = |input: &Input| {
        let own = input.ty.rank() - 2;
        let leading = Input {
            ty: cutout_tensor::TensorType::new(input.ty.dtype, input.ty.shape[..own].to_vec()),
            strides: input.strides[..own].to_vec(),
            ..input.clone()
        };
        leading.broadcast_strides(&batch_shape)
    };
    let axes = Axes::merged(&batch_shape, &[batch_strides(&a), batch_strides(&b)]);
    let (Some(a_batch), Some(b_batch)) = (axes.walk(0), axes.walk(1)) else {
        return Err(too_many_axes(site, axes.lengths.len()));
    };
    let last = |input: &Input| {
        let rank = input.ty.rank();
        (input.strides[rank - 2], input.strides[rank - 1])
    };
    let (a_row, a_depth) = last(&a);
    let (first, second) = last(&b);
    let (b_row, b_depth) = if op.transpose_right { (first, second) } else { (second, first) };
    let sizes = Sizes {
        rows: site.ty.shape[rank - 2],
        columns: site.ty.shape[rank - 1],
        depth: a.ty.shape.last_axis(),
        batch: batch_shape.iter().product(),
    };
    let left =
        Side { place: a.place, stored: a.stored, row: a_row, depth: a_depth, batch: a_batch };
    let right =
        Side { place: b.place, stored: b.stored, row: b_row, depth: b_depth, batch: b_batch };
    if split::of_matrices(sizes, [left, right], &finish, site) {
        return Ok(());
    }
    product_f32(sizes, left, right, &finish, site)
}
