//! Configurations of SAM 1: the published sizes, and reading one from the tensors of a checkpoint.

use super::{DECODER_HEADS, DecoderConfig, DecoderForm, EncoderConfig, ModelConfig, VitConfig};
use crate::model::load::{ConfigError, Shapes};

/// An encoder of SAM 1's family.
fn encoder(width: usize, depth: usize, heads: usize, global_blocks: &[usize]) -> VitConfig {
    VitConfig {
        image_size: 1024,
        patch: 16,
        width,
        depth,
        heads,
        mlp_width: 4 * width,
        window: 14,
        global_blocks: global_blocks.to_vec(),
        norm_epsilon: 1e-6,
    }
}

impl ModelConfig {
    /// SAM 1, ViT-B: 94 million parameters.
    pub fn sam1_vit_b() -> Self {
        sam1(encoder(768, 12, 12, &[2, 5, 8, 11]), 256, DecoderConfig::published(DecoderForm::Sam1))
    }

    /// SAM 1, ViT-L: 312 million parameters.
    pub fn sam1_vit_l() -> Self {
        sam1(
            encoder(1024, 24, 16, &[5, 11, 17, 23]),
            256,
            DecoderConfig::published(DecoderForm::Sam1),
        )
    }

    /// SAM 1, ViT-H: 641 million parameters.
    pub fn sam1_vit_h() -> Self {
        sam1(
            encoder(1280, 32, 16, &[7, 15, 23, 31]),
            256,
            DecoderConfig::published(DecoderForm::Sam1),
        )
    }
}

/// Reads the configuration of a SAM 1 from its tensors.
pub(super) fn read(shapes: &Shapes<'_>) -> Result<ModelConfig, ConfigError> {
    let trunk = read_encoder(shapes)?;
    let [embedding] = shapes.axes("image_encoder.neck.1.weight")?;
    let decoder = DecoderConfig::read(shapes, DecoderForm::Sam1, DECODER_HEADS)?;
    Ok(sam1(trunk, embedding, decoder))
}

fn sam1(trunk: VitConfig, embedding: usize, decoder: DecoderConfig) -> ModelConfig {
    let encoder = EncoderConfig::Vit { trunk, embedding };
    ModelConfig { encoder, decoder: Some(decoder), memory: None, finder: None }
}

fn read_encoder(shapes: &Shapes<'_>) -> Result<VitConfig, ConfigError> {
    let [_, grid, _, width] = shapes.axes("image_encoder.pos_embed")?;
    let [_, _, patch, _] = shapes.axes("image_encoder.patch_embed.proj.weight")?;
    let [_, head_width] = shapes.axes("image_encoder.blocks.0.attn.rel_pos_h")?;
    let [mlp_width] = shapes.axes("image_encoder.blocks.0.mlp.lin1.bias")?;
    let depth = shapes.count("image_encoder.blocks", "norm1.weight");
    // A global block has one relative position for each distance on the grid.
    let mut global_blocks = Vec::new();
    let mut window = grid;
    for block in 0..depth {
        let [positions, _] =
            shapes.axes(&format!("image_encoder.blocks.{block}.attn.rel_pos_h"))?;
        let side = positions.div_ceil(2);
        if side == grid {
            global_blocks.push(block);
        } else {
            window = side;
        }
    }
    Ok(VitConfig {
        image_size: grid.saturating_mul(patch),
        patch,
        width,
        depth,
        heads: (width / head_width).max(1),
        mlp_width,
        window,
        global_blocks,
        norm_epsilon: 1e-6,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cutout_tensor::Shape;

    use super::*;
    use crate::model::load::parameters;
    use crate::parts::graphs;

    #[test]
    fn configurations_are_read_back_from_their_own_shapes() {
        for config in
            [ModelConfig::sam1_vit_b(), ModelConfig::sam1_vit_l(), ModelConfig::sam1_vit_h()]
        {
            let shapes = parameters(&graphs(&config).expect("the presets can be built"));
            assert_eq!(read(&Shapes(&shapes)).expect("the shapes are whole"), config);
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_errors() {
        let shapes =
            parameters(&graphs(&ModelConfig::sam1_vit_b()).expect("the presets can be built"));
        for (tensor, axes) in [
            ("image_encoder.pos_embed", vec![1, 64]),
            ("image_encoder.blocks.0.attn.rel_pos_h", vec![27, 0]),
            ("mask_decoder.mask_tokens.weight", vec![]),
        ] {
            let mut broken = shapes.clone();
            broken.insert(tensor.to_owned(), Shape::new(&axes));
            let error = read(&Shapes(&broken)).expect_err("a broken shape");
            assert!(error.to_string().starts_with(tensor), "{error}");
        }
        assert!(read(&Shapes(&HashMap::new())).is_err());
    }
}
