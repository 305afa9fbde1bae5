//! From the stages of Hiera to the levels that decoder and memory read.

use cutout_graph::ops::ResizeMode;
use cutout_graph::{Scope, Value};

/// The levels of the pyramid, finest first.
#[derive(Clone, Copy)]
pub(crate) struct Levels<'g> {
    /// `[1, 4 grid, 4 grid, embedding / 8]` and `[1, 2 grid, 2 grid, embedding / 4]`, as the mask decoder adds them.
    pub(crate) fine: [Value<'g>; 2],
    /// `[1, grid, grid, embedding]`.
    pub(crate) top: Value<'g>,
}

/// The levels of four stages `[1, grid, grid, channels]`.
///
/// `w` has the laterals, 1×1 convolutions numbered from the coarsest; `decoder` the projections of the fine levels.
/// Only the third level adds the upsampled fourth level; the fourth has no other use.
pub(crate) fn pyramid<'g>(
    stages: &[Value<'g>; 4],
    w: &Scope<'g>,
    decoder: &Scope<'g>,
    embedding: usize,
) -> Levels<'g> {
    let lateral = |number: usize| Lateral { w: w.at("convs").at(number).at("conv"), embedding };
    let coarsest = lateral(0).apply(stages[3]);
    let [_, height, width, _] = stages[2].dims();
    let from_above = coarsest.resize(ResizeMode::Nearest, [height, width]);
    let fine = [
        lateral(3).project(stages[0], &decoder.at("conv_s0"), embedding / 8),
        lateral(2).project(stages[1], &decoder.at("conv_s1"), embedding / 4),
    ];
    Levels { fine, top: lateral(1).apply(stages[2]) + from_above }
}

/// A 1×1 convolution from a stage's channels to the embedding's.
struct Lateral<'g> {
    w: Scope<'g>,
    embedding: usize,
}

impl<'g> Lateral<'g> {
    /// `[embedding, inputs]`.
    fn weight(&self, inputs: usize) -> Value<'g> {
        let weight = self.w.parameter("weight", [self.embedding, inputs, 1, 1]);
        weight.reshape([self.embedding, inputs])
    }

    fn bias(&self) -> Value<'g> {
        self.w.parameter("bias", [self.embedding])
    }

    fn apply(&self, x: Value<'g>) -> Value<'g> {
        x.linear(self.weight(x.shape().last_axis())) + self.bias()
    }

    /// This convolution followed by another 1×1 convolution, with their weights multiplied into one.
    fn project(&self, x: Value<'g>, next: &Scope<'g>, outputs: usize) -> Value<'g> {
        let second = next.parameter("weight", [outputs, self.embedding, 1, 1]);
        let second = second.reshape([outputs, self.embedding]);
        let weight = second.matmul(self.weight(x.shape().last_axis()));
        let bias = self.bias().reshape([1, self.embedding]).linear(second).reshape([outputs]);
        x.linear(weight) + (bias + next.parameter("bias", [outputs]))
    }
}
