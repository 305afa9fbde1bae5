//! Products with bytes.

use cutout_graph::CompileError;
use cutout_graph::ops::QuantizedLinear;
use cutout_tensor::{DType, contiguous_strides};

use super::movement::{row_walk, too_many_axes};
use super::parameters::{self, Axes, code, walk};
use super::product::{Finish, one_matrix};
use super::{Input, Site, hopper};
use crate::fast::norm::quantize;
use crate::launch::{Argument, Place};
use crate::weights::Form;

/// Rows as bytes with a step each, behind zeros to `padded` bytes.
fn quantize_rows(
    x: &Input,
    [width, padded]: [usize; 2],
    [quantized, steps]: [Place; 2],
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let rows = x.ty.shape.rows();
    if padded == width && x.layout().is_contiguous() {
        let target = site.target();
        let fast = quantize((x.place, x.stored), [rows, width], [quantized, steps], target);
        if let Some(launch) = fast {
            site.launches.push(launch);
            return Ok(());
        }
    }
    let walk = if x.ty.rank() == 1 { one_matrix() } else { row_walk(x, site)? };
    let rows = site.count(rows)?;
    let parameters = parameters::Quantize {
        rows,
        width: site.count(width)?,
        padded: site.count(padded)?,
        from: code(x.stored),
        walk,
    };
    let outputs = [Argument::Write(quantized), Argument::Write(steps)];
    let arguments = [x.read()].into_iter().chain(outputs).chain([Argument::of(&parameters)]);
    site.launch("quantize_rows", [rows.div_ceil(4), 1, 1], 128, arguments.collect());
    Ok(())
}

pub(crate) fn quantized_linear(
    op: &QuantizedLinear,
    site: &mut Site<'_, '_>,
) -> Result<(), CompileError> {
    let (x, values, scales) =
        (site.inputs[0].clone(), site.inputs[1].clone(), site.inputs[2].clone());
    let finish = Finish::of(op.epilogue, 3, site);
    let (columns, width) = (values.ty.shape[0], values.ty.shape[1]);
    let padded = width.next_multiple_of(32);
    let rows = x.ty.shape.rows();
    let whole = values.place.region == crate::launch::Region::Weight(usize::MAX);
    let bytes = match values.node.filter(|_| whole) {
        Some(node) => site.weight(node, Form::Matrix { dtype: DType::I8, padded }),
        None => padded_bytes(&values, padded, site)?,
    };
    let quantized = site.scratch(rows * padded);
    let steps = site.scratch(rows * 4);
    quantize_rows(&x, [width, padded], [quantized, steps], site)?;
    let [rows, padded] = [site.count(rows)?, site.count(padded)?];
    let groups = scales.ty.shape[1];
    let described = hopper::Bytes {
        a: (quantized, [rows as usize, padded as usize]),
        steps,
        weight: (bytes, columns),
        scales: scales.place,
    };
    if groups == 1 && width > 0 && hopper::product_bytes(described, &finish, site) {
        return Ok(());
    }
    let epilogue = finish.parameters();
    let columns = site.count(columns)?;
    let parameters = parameters::Quantized {
        rows,
        columns,
        padded,
        group: site.count(op.scales.block_length(width))?,
        groups: site.count(groups)?,
        residual: epilogue.residual,
        to: epilogue.to,
        activation: epilogue.activation,
        scale: epilogue.scale,
    };
    let [bias, residual] = finish.arguments();
    let arguments = vec![
        Argument::Read(quantized),
        Argument::Read(steps),
        Argument::Read(bytes),
        scales.read(),
        bias,
        residual,
        Argument::Write(finish.output),
        Argument::of(&parameters),
    ];
    site.launch("product_bytes", [columns.div_ceil(64), rows.div_ceil(64), 1], 256, arguments);
    Ok(())
}

/// Bytes that are given at each run, each row with zeros behind it.
fn padded_bytes(
    values: &Input,
    padded: usize,
    site: &mut Site<'_, '_>,
) -> Result<Place, CompileError> {
    let (rows, width) = (values.ty.shape[0], values.ty.shape[1]);
    let place = site.scratch(rows * padded);
    if rows * width == 0 {
        return Ok(place);
    }
    // Zeros first, then the rows over them.
    let zeros = site.table(vec![0]);
    let fill = parameters::Copy {
        total: site.count(rows * padded)?,
        bytes: 1,
        from: walk(&[rows * padded], &[0]).unwrap_or_else(one_matrix),
        to: walk(&[rows * padded], &[1]).unwrap_or_else(one_matrix),
    };
    let arguments = vec![Argument::Read(zeros), Argument::Write(place), Argument::of(&fill)];
    site.launch_each("copy_elements", fill.total, arguments);
    let strides = contiguous_strides(&values.ty.shape);
    let axes = Axes::merged(&values.ty.shape, &[strides, vec![padded, 1]]);
    let (Some(from), Some(to)) = (axes.walk(0), axes.walk(1)) else {
        return Err(too_many_axes(site, 2));
    };
    let copy = parameters::Copy { total: site.count(rows * width)?, bytes: 1, from, to };
    let arguments = vec![values.read(), Argument::Write(place), Argument::of(&copy)];
    site.launch_each("copy_elements", copy.total, arguments);
    Ok(place)
}
