//! Products and attention of f32 numbers as sums of two bf16 numbers, on Hopper: see `kernels/sm90/gemm_split.cu` and `attention_split.cu`.
//!
//! A model that runs in single precision as a whole does not use them: TF32 numbers, of which [`super::tensor_cores`] makes pairs, have four more bits.

use cutout_graph::ops::{Activation, Attention, AttentionInputs};
use cutout_graph::{CompileError, Precision};
use cutout_tensor::DType;

use super::attention::{join, partial_memory};
use super::followers::Follower;
use super::parameters::SplitMatrix;
use super::product::{Finish, RowsOf, Side, Sizes, WeightMatrix};
use super::{Input, Site};
use crate::fast::split::{DEPTH, SplitProduct, split_product};
use crate::fast::split_attention::{self, SplitAttention};
use crate::fast::{Matrix, Tokens};
use crate::launch::{Argument, Place, Region};
use crate::weights::Form;

/// A product as the kernel has it, apart from its second operand, and the op behind it that it takes along.
struct Split {
    product: SplitProduct,
    follower: Option<Follower>,
}

/// The end of a product with what follows it, if the kernels may have it.
fn described(
    a: Matrix,
    (columns, matrices): (usize, usize),
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> Option<Split> {
    let single = site.lowering.profile.precision == Precision::F32;
    if single || finish.to != DType::F32 {
        return None;
    }
    let residual = match finish.residual {
        None => None,
        // The kernel adds it before GELU, the epilogue after.
        Some((place, DType::F32)) if finish.epilogue.activation == Activation::Identity => {
            Some((place, a.rows * columns))
        }
        Some(_) => return None,
    };
    let padded = a.columns.next_multiple_of(DEPTH);
    let bytes = matrices * columns * 2 * padded * DType::BF16.size();
    // Where the operand is does not matter yet: it is made only for products that are launched.
    let somewhere = Place { region: Region::Weight(usize::MAX), offset: 0, bytes };
    let product = SplitProduct {
        a,
        weight: Matrix::dense(somewhere, DType::BF16, [matrices * columns, 2 * padded]),
        matrices,
        bias: finish.bias,
        residual,
        activation: finish.epilogue.activation,
        shuffle: finish.shuffle,
        output: finish.output,
    };
    let target = site.target();
    split_product(&product, target)?;
    let whole = finish.output == site.output;
    let free = residual.is_none() && product.activation == Activation::Identity && whole;
    let follower = if free { site.lowering.follower() } else { None };
    let with = |follower: Follower| {
        let residual = follower.add.map(|add| (add.place, add.elements));
        let activation = if follower.gelu { Activation::Gelu } else { Activation::Identity };
        let product = SplitProduct { residual, activation, ..product };
        split_product(&product, target).map(|_| Split { product, follower: Some(follower) })
    };
    Some(follower.and_then(with).unwrap_or(Split { product, follower: None }))
}

impl Split {
    /// The launch, once the second operand is at its place.
    fn launch(mut self, weight: Place, site: &mut Site<'_, '_>) {
        self.product.weight.place = weight;
        site.launches.extend(split_product(&self.product, site.target()));
        if let Some(follower) = self.follower {
            site.lowering.fusions.drop_step(follower.node);
        }
    }
}

/// A product of f32 rows with a weight; false if no kernel takes it.
pub(super) fn with_weight(
    a: RowsOf,
    weight: &WeightMatrix<'_>,
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> bool {
    let RowsOf { place, stored, rows, depth, stride } = a;
    let rows = Matrix { place, stored, rows, columns: depth, stride };
    if finish.epilogue.scale != 1.0 {
        return false;
    }
    let Some(split) = described(rows, (weight.columns, 1), finish, site) else {
        return false;
    };
    let padded = depth.next_multiple_of(DEPTH);
    let of = Box::new((weight.form)(DType::F32, padded));
    let place = site.weight(weight.node, Form::Split { of, padded });
    split.launch(place, site);
    true
}

/// Products of f32 matrices with as many others, which are split first; false if no kernel takes them.
pub(super) fn of_matrices(
    sizes: Sizes,
    [a, b]: [Side; 2],
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> bool {
    let Sizes { rows, columns, depth, batch } = sizes;
    // The rows of all matrices lie as those of one.
    let next =
        a.batch.rank == 0 || (a.batch.rank == 1 && a.batch.strides[0] == (rows * a.row) as i64);
    let scaled_bias = finish.bias.is_some() && finish.epilogue.scale != 1.0;
    let many_rows = rows >= 8 * columns.min(256);
    if !next || !many_rows || a.depth != 1 || b.stored != DType::F32 || scaled_bias {
        return false;
    }
    let all = Matrix {
        place: a.place,
        stored: a.stored,
        rows: batch * rows,
        columns: depth,
        stride: a.row,
    };
    let Some(split) = described(all, (columns, batch), finish, site) else { return false };
    let padded = depth.next_multiple_of(DEPTH);
    let [Ok(matrices), Ok(columns), Ok(depth), Ok(padded_depth)] =
        [batch, columns, depth, padded].map(|length| site.count(length))
    else {
        return false;
    };
    let parameters = SplitMatrix {
        matrices,
        columns,
        depth,
        padded: padded_depth,
        column: b.row as i64,
        along: b.depth as i64,
        scale: finish.epilogue.scale,
        unused: 0,
        batch: b.batch,
    };
    let place = site.scratch(split.product.weight.place.bytes);
    let arguments =
        vec![Argument::Read(b.place), Argument::Write(place), Argument::of(&parameters)];
    site.launch_each("split_matrix", matrices * columns * padded_depth / 2, arguments);
    split.launch(place, site);
    true
}

/// Attention of f32 numbers as sums of two bf16 numbers, for wide heads over many keys; false if no kernel takes it.
pub(super) fn attention(
    op: &Attention,
    inputs: &AttentionInputs<&Input>,
    site: &mut Site<'_, '_>,
) -> Result<bool, CompileError> {
    let three = [inputs.query, inputs.key, inputs.value];
    let single = site.lowering.profile.precision == Precision::F32;
    let suited = three.iter().all(|input| {
        input.stored == DType::F32 && input.ty.shape[2] == op.heads * split_attention::WIDTH
    });
    if single || !suited || site.stored != DType::F32 {
        return Ok(false);
    }
    let shape = |input: &Input| [input.ty.shape[0], input.ty.shape[1]];
    let [batch, queries] = shape(inputs.query);
    let described = SplitAttention {
        op,
        batch,
        tokens: [queries, shape(inputs.key)[1]],
        operands: three.map(|input| Tokens {
            place: input.place,
            picture: input.strides[0],
            token: input.strides[1],
        }),
        output: site.output,
    };
    let target = site.target();
    if !described.fits(target) {
        return Ok(false);
    }
    let (lines, parts) = (batch * queries * op.heads, described.parts(target));
    let partial = partial_memory(lines, parts, split_attention::WIDTH, site);
    let Some(launch) = described.launch(partial, target) else { return Ok(false) };
    site.launches.push(launch);
    join(partial, (lines, parts, split_attention::WIDTH as u32), site)?;
    Ok(true)
}
