//! The image encoder.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::TensorType;

use super::decode::interactive_levels;
use super::object_prompt::FrameFeatures;
use crate::components::image_encoder::{hiera, neck, projected_pyramid, pyramid, rotary_vit, vit};
use crate::model::ModelError;
use crate::model::config::{EncoderConfig, HieraConfig, ModelConfig, MultiplexConfig};
use crate::model::part::Part;

ports! {
    /// Input of the image encoder.
    pub struct Pixels {
        /// Normalised pixels, `f32[pictures, size, size, 3]`.
        pixels,
    }
}

ports! {
    /// The features of one picture. Each family has some of them.
    pub struct Encoded {
        /// SAM 3: output of the ViT, input of both necks, `f32[1, grid, grid, channels]`.
        trunk: optional,
        /// SAM 2, and frames of SAM 3: the finest level projected for the mask decoder,
        /// `f32[1, 4 grid, 4 grid, width / 8]`.
        level0: optional,
        /// The same: the middle level projected for the mask decoder, `f32[1, 2 grid, 2 grid, width / 4]`.
        level1: optional,
        /// The same: the top level, input of memory encoder and memory attention, `f32[1, grid, grid, width]`.
        level2: optional,
        /// SAM 1, SAM 2 and frames of SAM 3: embedding for the mask decoder, `f32[1, grid, grid, width]`.
        embedding: optional,
    }
}

ports! {
    /// The features of several pictures.
    pub struct EncodedPictures {
        /// One for each.
        pictures: list Encoded,
    }
}

/// The image encoder.
#[derive(Clone, Copy, Debug)]
pub struct Encode {
    /// Pictures that are encoded at once.
    pub pictures: usize,
}

impl Part for Encode {
    type Inputs = Pixels<()>;
    type Outputs = EncodedPictures<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<Pixels<TensorType>, ModelError> {
        let size = config.encoder.image_size();
        Ok(Pixels { pixels: TensorType::f32([self.pictures, size, size, 3]) })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        Pixels { pixels }: Pixels<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<EncodedPictures<Value<'g>>, ModelError> {
        let all = match &config.encoder {
            EncoderConfig::Vit { trunk, embedding } => {
                let w = &w.at("image_encoder");
                let embedding = neck(vit(pixels, w, trunk), &w.at("neck"), *embedding);
                Encoded { embedding: Some(embedding), ..Encoded::none() }
            }
            EncoderConfig::Hiera(hiera) => levels(pixels, w, hiera, config)?,
            EncoderConfig::RotaryVit { trunk, positions } => {
                let w = &w.at("detector.backbone.vision_backbone.trunk");
                let trunk = rotary_vit(pixels, w, trunk, *positions);
                Encoded { trunk: Some(trunk), ..Encoded::none() }
            }
        };
        let picture = |index: usize| {
            let of = |value: Option<Value<'g>>| value.map(|value| value.slice(0, index..index + 1));
            Encoded {
                trunk: of(all.trunk),
                level0: of(all.level0),
                level1: of(all.level1),
                level2: of(all.level2),
                embedding: of(all.embedding),
            }
        };
        Ok(EncodedPictures { pictures: (0..self.pictures).map(picture).collect() })
    }
}

impl<V> Encoded<V> {
    /// No feature at all.
    pub(crate) fn none() -> Self {
        Encoded { trunk: None, level0: None, level1: None, level2: None, embedding: None }
    }
}

/// From the features of a picture of SAM 3 to the levels that its tracker reads. In SAM 3.1 they answer prompts only:
/// [`FollowLevels`] has those of objects that are followed.
#[derive(Clone, Copy, Debug)]
pub struct FrameLevels;

/// From the features of a picture of SAM 3.1 to the levels from which objects are followed and remembered.
#[derive(Clone, Copy, Debug)]
pub struct FollowLevels;

/// The features of a picture of SAM 3.
fn trunk_type(config: &ModelConfig) -> Result<Encoded<TensorType>, ModelError> {
    let EncoderConfig::RotaryVit { trunk, .. } = &config.encoder else {
        return Err(ModelError::NoMemory);
    };
    let grid = trunk.grid();
    let trunk = TensorType::f32([1, grid, grid, trunk.width]);
    Ok(Encoded { trunk: Some(trunk), ..Encoded::none() })
}

impl Part for FollowLevels {
    type Inputs = Encoded<()>;
    type Outputs = FrameFeatures<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<Encoded<TensorType>, ModelError> {
        trunk_type(config)
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        features: Encoded<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<FrameFeatures<Value<'g>>, ModelError> {
        let trunk = features.trunk.ok_or(ModelError::NoMemory)?;
        let neck = &w.at("detector.backbone.vision_backbone.propagation_convs");
        let decoder = &w.at(MultiplexConfig::DECODER);
        let [level0, level1, level2] =
            projected_pyramid(trunk, neck, decoder, config.decoder()?.width);
        Ok(FrameFeatures { level0, level1, level2 })
    }
}

impl Part for FrameLevels {
    type Inputs = Encoded<()>;
    type Outputs = Encoded<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<Encoded<TensorType>, ModelError> {
        trunk_type(config)
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        features: Encoded<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Encoded<Value<'g>>, ModelError> {
        let trunk = features.trunk.ok_or(ModelError::NoMemory)?;
        Ok(interactive_levels(trunk, w, config.decoder()?))
    }
}

/// The pyramid of SAM 2.
fn levels<'g>(
    pixels: Value<'g>,
    w: &Scope<'g>,
    encoder: &HieraConfig,
    config: &ModelConfig,
) -> Result<Encoded<Value<'g>>, ModelError> {
    let width = encoder.embedding;
    let stages = hiera(pixels, &w.at("image_encoder.trunk"), encoder);
    let decoder = &w.at(config.decoder()?.form.mask_decoder());
    let levels = pyramid(&stages, &w.at("image_encoder.neck"), decoder, width);
    // A picture has no memories: a learnt vector is added instead.
    let embedding = levels.top + w.parameter("no_mem_embed", [1, 1, width]);
    Ok(Encoded {
        trunk: None,
        level0: Some(levels.fine[0]),
        level1: Some(levels.fine[1]),
        level2: Some(levels.top),
        embedding: Some(embedding),
    })
}
