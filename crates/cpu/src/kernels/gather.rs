//! Rows of a table, by index.

use cutout_graph::{CompileError, Data, DenseTensor, Op, RunError, ops};
use cutout_tensor::{DType, LazyTensor, Tensor};
use half::slice::HalfFloatSliceExt;

use crate::execute::{Execute, Inputs, Io};
use crate::gemm::WeightData;
use crate::gemm::weight_data;
use crate::lower::{Lowered, Site};

/// Elements a task copies, at least one row.
const TASK: usize = 1 << 15;
/// Position of the table among the inputs.
const TABLE: usize = 0;

/// Where the rows of a table are.
enum Table {
    /// In an input, in `f32`.
    Input,
    /// In a weight in half precision; only the gathered rows are widened.
    Half(Tensor),
    /// In a weight that is joined or decoded; only the gathered rows are.
    Made(LazyTensor),
}

/// Copies rows of a contiguous table.
struct Gather {
    /// Element type of the indices.
    indices: DType,
    table: Table,
}

/// The kernel of a gather.
pub(crate) fn lower(site: &Site<'_>) -> Result<Lowered, CompileError> {
    let indices = site.inputs[1].ty.dtype;
    let table = match &site.statics[TABLE] {
        None => Table::Input,
        Some(known) => match known.by_rows() {
            Some(rows) => Table::Made(rows.clone()),
            None if is_half(known.dtype()) => {
                Table::Half(site.weights.plain(known, known.dtype())?)
            }
            None => Table::Input,
        },
    };
    let absorbed = if matches!(table, Table::Input) { Vec::new() } else { vec![TABLE] };
    Ok(Lowered { kernel: Box::new(Gather { indices, table }), absorbed })
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

impl Gather {
    /// The indices, after the op itself has checked that they are inside the table.
    fn indices(&self, inputs: &Inputs<'_>) -> Result<Vec<i64>, RunError> {
        let indices: Vec<i64> = match self.indices {
            DType::I8 => inputs.slice::<i8>(1).iter().map(|&i| i.into()).collect(),
            DType::U8 => inputs.slice::<u8>(1).iter().map(|&i| i.into()).collect(),
            DType::I32 => inputs.slice::<i32>(1).iter().map(|&i| i.into()).collect(),
            DType::I64 => inputs.slice::<i64>(1).to_vec(),
            DType::F32 | DType::F16 | DType::BF16 | DType::Bool => {
                panic!("inference lets only integers be indices")
            }
        };
        // The check reads only the table's shape.
        let shape = inputs.layout(TABLE).shape.clone();
        let table = DenseTensor::<f32> { shape, data: Data::Real(Vec::new()) };
        let plain = DenseTensor::from_int([indices.len()], indices);
        let op = Op::from(ops::Gather);
        op.check_values(&[&table, &plain])
            .map_err(|reason| RunError::Value { op: op.printed(), reason })?;
        Ok(plain.int().to_vec())
    }
}

impl Execute for Gather {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let indices = self.indices(&io.inputs)?;
        let width: usize = io.inputs.layout(TABLE).shape[1..].iter().product();
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        let table = match &self.table {
            Table::Input => WeightData::F32(io.inputs.f32(TABLE)),
            Table::Half(table) => weight_data(table)?,
            Table::Made(table) => return make_rows(table, &indices, output),
        };
        let rows = (TASK / width).max(1);
        io.pool.for_chunks(output, rows * width, &|task, output| {
            let indices = &indices[task * rows..];
            for (row, &index) in output.chunks_exact_mut(width).zip(indices) {
                let range = index as usize * width..(index as usize + 1) * width;
                match table {
                    WeightData::F32(table) => row.copy_from_slice(&table[range]),
                    WeightData::F16(table) => table[range].convert_to_f32_slice(row),
                    WeightData::Bf16(table) => table[range].convert_to_f32_slice(row),
                }
            }
        });
        Ok(())
    }
}

/// Joins or decodes the rows with these indices, one after the other: there are as many as a phrase has tokens.
fn make_rows(table: &LazyTensor, indices: &[i64], output: &mut [f32]) -> Result<(), RunError> {
    let width = output.len() / indices.len();
    for (row, &index) in output.chunks_exact_mut(width).zip(indices) {
        let made = table.rows(index as usize..index as usize + 1)?;
        row.copy_from_slice(&made.to_contiguous()?.cast(DType::F32)?.to_vec::<f32>()?);
    }
    Ok(())
}
