//! Products with bytes.

use cutout_graph::ops::QuantizedLinear;
use cutout_graph::plan::{Action, Operand, Source, Step};
use cutout_graph::{CompileError, Op};
use cutout_tensor::{DType, contiguous_strides};

use super::movement::{row_walk, too_many_axes};
use super::parameters::{self, Axes, code, walk};
use super::product::{Finish, one_matrix};
use super::{Input, Site, hopper};
use crate::fast::norm::quantize;
use crate::launch::{Argument, Place};
use crate::weights::Form;

/// Bytes of the rows and the step of each, in the buffer that the rows as halves would fill; `None` if they do not fit.
fn bytes_and_steps(buffer: Place, [rows, width]: [usize; 2]) -> Option<[Place; 2]> {
    let behind = (rows * width).next_multiple_of(16);
    let fits = buffer.offset.is_multiple_of(16) && behind + rows * 4 <= buffer.bytes;
    let bytes = Place { bytes: rows * width, ..buffer };
    let steps = Place { offset: buffer.offset + behind, bytes: rows * 4, ..buffer };
    fits.then_some([bytes, steps])
}

/// Where the rows of a value that is only multiplied as bytes are written as such, with their steps: in its own buffer. `None` for a value
/// that something reads in another way, or whose rows would need zeros behind them.
pub(crate) fn rows_written(site: &Site<'_, '_>) -> Option<[Place; 2]> {
    let (graph, plan) = (site.lowering.graph, site.lowering.plan);
    let own = site.lowering.planned()?;
    let buffer = Source::Buffer(own.output);
    let width = site.ty.shape.last_axis();
    let multiplies = |step: &Step| {
        let Action::Compute(node) = step.action else { return false };
        step.output != own.output && matches!(graph.op(node), Some(Op::QuantizedLinear(_)))
    };
    let whole = |operand: &Operand| {
        let layout = &operand.layout;
        layout.is_contiguous() && layout.offset == 0 && operand.ty.shape.last_axis() == width
    };
    let suits = |step: &Step| {
        let inputs = step.inputs.iter().enumerate();
        let mut reads = inputs.filter(|(_, input)| input.source == buffer).peekable();
        let touches = reads.peek().is_some() || step.output == own.output;
        !touches || multiplies(step) && reads.all(|(index, input)| index == 0 && whole(input))
    };
    let others = plan.steps.iter().filter(|step| !std::ptr::eq(*step, own));
    let shown = plan.outputs.iter().any(|(_, operand)| operand.source == buffer);
    let suited = site.stored == DType::F16
        && width.is_multiple_of(PADDING)
        && !shown
        && others.into_iter().all(suits);
    let rows = site.ty.shape.rows();
    suited.then(|| bytes_and_steps(site.output, [rows, width]))?
}

/// The rows of the first operand and their steps, if what computed it has written it so.
fn rows_found(site: &Site<'_, '_>) -> Option<[Place; 2]> {
    let Source::Buffer(index) = site.lowering.planned()?.inputs.first()?.source else {
        return None;
    };
    let shape = &site.inputs[0].ty.shape;
    let written = site.lowering.fusions.has_bytes(index);
    written
        .then(|| bytes_and_steps(site.lowering.buffer(index), [shape.rows(), shape.last_axis()]))?
}

/// Rows of bytes are padded with zeros to a multiple of this.
const PADDING: usize = 32;

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
    let padded = width.next_multiple_of(PADDING);
    let rows = x.ty.shape.rows();
    let whole = values.place.region == crate::launch::Region::Weight(usize::MAX);
    let bytes = match values.node.filter(|_| whole) {
        Some(node) => site.weight(node, Form::Matrix { dtype: DType::I8, padded }),
        None => padded_bytes(&values, padded, site)?,
    };
    let [quantized, steps] = match rows_found(site) {
        Some(found) => found,
        None => {
            let places = [site.scratch(rows * padded), site.scratch(rows * 4)];
            quantize_rows(&x, [width, padded], places, site)?;
            places
        }
    };
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
