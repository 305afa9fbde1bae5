//! Ops without a kernel of their own, run by their plain-loop definition.

use cutout_graph::plan::Operand;
use cutout_graph::{Op, Plain, RunError};
use cutout_tensor::{Tensor, TensorType};

use crate::execute::{Execute, Io};
use crate::kernels::copy::copied_tensor;
use crate::lower::Site;

/// Runs an op's definition in single precision.
pub(crate) struct Reference {
    op: Op,
    inputs: Vec<Operand>,
    output: TensorType,
}

impl Reference {
    pub(crate) fn new(op: &Op, site: &Site<'_>) -> Self {
        // Memory is handed over from the first element on.
        let from_start = |operand: &Operand| {
            let mut operand = operand.clone();
            operand.layout.offset = 0;
            operand
        };
        let inputs = site.inputs.iter().map(from_start).collect();
        Reference { op: op.clone(), inputs, output: site.output.clone() }
    }
}

impl Execute for Reference {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let tensors: Vec<Tensor> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(index, operand)| copied_tensor(operand, io.inputs.bytes(index), io.pool))
            .collect::<Result<_, _>>()?;
        let plain: Vec<Plain<f32>> =
            tensors.iter().map(Plain::from_tensor).collect::<Result<_, _>>()?;
        let plain: Vec<&Plain<f32>> = plain.iter().collect();
        self.op
            .check_values(&plain)
            .map_err(|reason| RunError::Value { op: self.op.printed(), reason })?;
        let result = self.op.reference(&plain).to_tensor(&self.output)?;
        io.output.slice::<u8>().copy_from_slice(result.as_bytes()?);
        Ok(())
    }
}
