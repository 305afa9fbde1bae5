//! Rows of a table, by index.

use cutout_graph::{Data, Op, Plain, RunError, ops};
use cutout_tensor::DType;

use crate::execute::{Execute, Inputs, Io, for_chunks};

/// Elements a task copies, at least one row.
const TASK: usize = 1 << 15;

/// Copies rows of a contiguous table.
pub(crate) struct Gather {
    /// Element type of the indices.
    pub(crate) indices: DType,
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
        // The check looks at the table's shape alone.
        let shape = inputs.layout(0).shape.clone();
        let table = Plain::<f32> { shape, data: Data::Real(Vec::new()) };
        let plain = Plain::from_int([indices.len()], indices);
        let op = Op::from(ops::Gather);
        op.check_values(&[&table, &plain])
            .map_err(|reason| RunError::Value { op: op.printed(), reason })?;
        Ok(plain.int().to_vec())
    }
}

impl Execute for Gather {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let indices = self.indices(&io.inputs)?;
        let table = io.inputs.f32(0);
        let width: usize = io.inputs.layout(0).shape[1..].iter().product();
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        let rows = (TASK / width).max(1);
        for_chunks(io.pool, output, rows * width, &|task, output| {
            let indices = &indices[task * rows..];
            for (row, &index) in output.chunks_exact_mut(width).zip(indices) {
                let start = index as usize * width;
                row.copy_from_slice(&table[start..start + width]);
            }
        });
        Ok(())
    }
}
