//! Masks at the size of the picture, made on the device.

use cutout_graph::ops::MaskBits;
use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use crate::model::ModelError;
use crate::model::config::ModelConfig;
use crate::model::part::Part;

ports! {
    /// Masks of a batch of prompts.
    pub struct ChosenMasks {
        /// Mask logits, `f32[prompts, candidates, 4 grid, 4 grid]`.
        logits,
        /// Which of them are wanted, `i64[rows]`: prompt * candidates + candidate.
        rows,
    }
}

ports! {
    /// Masks as bits.
    pub struct MaskWords {
        /// The rows of [`MaskBits`], one for each mask, `i32[rows, 2 + width * ceil(height / 32)]`.
        words,
    }
}

/// Upsamples the chosen masks and compares them with a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThresholdMasks {
    /// Prompts of the batch.
    pub prompts: usize,
    /// Masks of each.
    pub candidates: usize,
    /// Masks that are wanted.
    pub rows: usize,
    /// Size of the picture, and the threshold.
    pub bits: MaskBits,
}

impl Part for ThresholdMasks {
    type Inputs = ChosenMasks<()>;
    type Outputs = MaskWords<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<ChosenMasks<TensorType>, ModelError> {
        let side = config.mask_side();
        Ok(ChosenMasks {
            logits: TensorType::f32([self.prompts, self.candidates, side, side]),
            rows: TensorType::new(DType::I64, [self.rows]),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: ChosenMasks<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<MaskWords<Value<'g>>, ModelError> {
        let side = config.mask_side();
        let masks = inputs.logits.reshape([self.prompts * self.candidates, side, side]);
        Ok(MaskWords { words: masks.gather(inputs.rows).mask_bits(self.bits) })
    }
}
