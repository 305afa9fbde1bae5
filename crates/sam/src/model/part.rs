//! Parts: the inputs, outputs and graph of one program.

use std::fmt::Debug;

use cutout_graph::{Builder, Graph, Ports, Scope, Value, map};
use cutout_tensor::{TensorError, TensorType, memory};

use super::ModelError;
use super::config::ModelConfig;

/// A structure of ports `P` with a `V` at each port.
pub type Of<P, V> = <P as Ports>::Of<V>;

/// One program of a model. Its fields determine the shapes; the `Debug` form is the cache key of the compiled program.
pub trait Part: Debug {
    /// Structure of the inputs.
    type Inputs: Ports;
    /// Structure of the outputs.
    type Outputs: Ports;

    /// Types of the inputs.
    fn inputs(&self, config: &ModelConfig) -> Result<Of<Self::Inputs, TensorType>, ModelError>;

    /// Builds the graph. `w` is the root of the weights.
    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: Of<Self::Inputs, Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Of<Self::Outputs, Value<'g>>, ModelError>;
}

/// Whether a graph also returns the values that model code named as stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// Only the outputs.
    Hidden,
    /// The stages before the outputs, for comparison with another implementation.
    Shown,
}

/// Memory for the tables of positions and rotations that model code makes while it builds: several of four bytes for each
/// cell and channel.
fn table_bytes(config: &ModelConfig) -> u64 {
    let width = config.decoder.as_ref().map_or(0, |decoder| decoder.width);
    (16 * config.encoder.grid().pow(2) * width) as u64
}

/// The graph of a part, and the number of each output.
pub fn graph_of<P: Part>(
    part: &P,
    config: &ModelConfig,
    stages: Stages,
) -> Result<(Graph, Of<P::Outputs, usize>), ModelError> {
    memory::probe(table_bytes(config)).map_err(TensorError::from)?;
    let builder = Builder::new();
    let types = part.inputs(config)?;
    let declare = &mut |name: &str, ty: TensorType| builder.input(name, ty.dtype, ty.shape);
    let inputs = map::<P::Inputs, _, _>(types, declare);
    let outputs = part.build(config, inputs, &builder.weights())?;
    let mut count = 0;
    let outputs = map::<P::Outputs, _, _>(outputs, &mut |name, value| {
        builder.output(name, value);
        count += 1;
        count - 1
    });
    let graph = match stages {
        Stages::Hidden => builder.finish(),
        Stages::Shown => builder.finish_with_stages(),
    };
    Ok((graph?, outputs))
}
