//! The programs of SAM 3's detector.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use super::image::Encoded;
use crate::components::detector::{DecoderSources, decoder, scores};
use crate::components::fusion_encoder::{FusionLayer, KeysAndValues};
use crate::components::geometry_encoder::{Geometry, corners, geometry_encoder};
use crate::components::image_encoder::simple_pyramid;
use crate::components::positions::grid_positions;
use crate::components::segmentation_head::{MaskSources, segmentation_head};
use crate::components::text_encoder::text_encoder;
use crate::model::ModelError;
use crate::model::config::{DetectorConfig, EncoderConfig, ModelConfig};
use crate::model::part::Part;

pub use crate::components::geometry_encoder::LabelledCoordinates;

/// Where the detector's weights are.
const DETECTOR: &str = "detector";

ports! {
    /// Inputs of the detector that depend on the picture alone, computed once for all phrases.
    pub struct FindLevels {
        /// `f32[1, 4 grid, 4 grid, width]`.
        level0,
        /// `f32[1, 2 grid, 2 grid, width]`.
        level1,
        /// `f32[1, grid, grid, width]`.
        level2,
        /// The image after self-attention in the first layer of the fusion, `f32[1, grid * grid, width]`.
        fusion,
        /// Exemplar tokens of a query without exemplars, `f32[1, 1, width]`.
        no_exemplars,
    }
}

/// Computes [`FindLevels`].
#[derive(Clone, Copy, Debug)]
pub struct FindFeatures;

ports! {
    /// A phrase.
    pub struct TextInputs {
        /// Numbers in the vocabulary, `i64[tokens]`.
        tokens,
        /// Indices of the tokens passed to the detector, `i64[kept]`.
        kept,
    }
}

ports! {
    /// Tokens of a phrase or of exemplars.
    pub struct TextTokens {
        /// `f32[1, tokens, width]`.
        tokens,
    }
}

/// The text encoder.
#[derive(Clone, Copy, Debug)]
pub struct EncodeText {
    /// Tokens of the phrase, start and end included.
    pub tokens: usize,
    /// Tokens passed to the detector.
    pub kept: usize,
}

ports! {
    /// Exemplars on a picture.
    pub struct ExemplarInputs {
        /// See [`FindLevels`].
        level2,
        /// Boxes (centre x, centre y, width, height) in 0..1, `f32[boxes, 4]`.
        boxes: optional LabelledCoordinates,
        /// Points (x, y) in 0..1, `f32[points, 2]`.
        points: optional LabelledCoordinates,
    }
}

/// The geometry encoder.
#[derive(Clone, Copy, Debug)]
pub struct EncodeExemplars {
    /// Boxes.
    pub boxes: usize,
    /// Points.
    pub points: usize,
}

impl EncodeExemplars {
    /// Number of exemplar tokens, including the class token.
    pub fn tokens(&self) -> usize {
        self.boxes + self.points + 1
    }
}

ports! {
    /// A picture, a phrase and exemplars.
    pub struct DetectInputs {
        /// See [`FindLevels`].
        level0,
        /// See [`FindLevels`].
        level1,
        /// See [`FindLevels`].
        fusion,
        /// Tokens of the phrase, `f32[1, text, width]`.
        text,
        /// Tokens of the exemplars, `f32[1, exemplars, width]`.
        exemplars,
    }
}

ports! {
    /// Raw outputs of the detector for one phrase.
    pub struct RawDetections {
        /// Scores of all queries, `f32[queries]`, before the sigmoid and without the presence.
        logits,
        /// Presence logit, `f32[1]`.
        presence,
        /// Boxes of all queries `f32[queries, 4]`: left, top, right, bottom, as shares of width and height.
        boxes,
        /// Masks of all queries `f32[queries, 4 grid, 4 grid]`, before the sigmoid.
        masks,
        /// Semantic mask logits, `f32[1, 4 grid, 4 grid]`, before the sigmoid.
        semantic,
    }
}

/// Fusion of picture and phrase, detector, and segmentation head.
#[derive(Clone, Copy, Debug)]
pub struct Detect {
    /// Tokens of the phrase.
    pub text: usize,
    /// Tokens of the exemplars.
    pub exemplars: usize,
}

/// The detector of a model, while a graph of it is built.
struct Detector<'g, 'c> {
    w: Scope<'g>,
    config: &'c DetectorConfig,
    grid: usize,
}

impl<'g, 'c> Detector<'g, 'c> {
    fn new(config: &'c ModelConfig, w: &Scope<'g>) -> Result<Self, ModelError> {
        let (w, grid) = (w.at(DETECTOR), config.encoder.grid());
        Ok(Detector { w, config: &config.finder()?.detector, grid })
    }

    fn fusion_layer(&self, index: usize) -> FusionLayer<'g, 'c> {
        let w = self.w.at("transformer.encoder.layers").at(index);
        FusionLayer { w, config: self.config }
    }

    fn positions(&self) -> Value<'g> {
        grid_positions(self.w.builder(), self.grid, self.config.width)
    }

    fn exemplar_tokens(&self, geometry: Geometry<'g>, level2: Value<'g>) -> Value<'g> {
        geometry_encoder(geometry, level2, &self.w.at("geometry_encoder"), self.config)
    }

    /// Image tokens after cross-attention to the prompt, `[1, grid * grid, width]`.
    fn fuse(&self, fusion: Value<'g>, prompt: Value<'g>) -> Value<'g> {
        let positions = self.positions();
        let source = KeysAndValues { keys: prompt, values: prompt };
        let mut x = fusion;
        for index in 0..self.config.fusion_depth {
            let layer = self.fusion_layer(index);
            // The self-attention of the first layer does not depend on the prompt: see `FindLevels::fusion`.
            let attended = if index == 0 { x } else { layer.self_attention(x, Some(positions)) };
            x = layer.w.stage("", layer.cross_attention_and_mlp(attended, source));
        }
        x
    }
}

/// Type of a level with `scale` times the grid.
fn level(config: &ModelConfig, scale: usize) -> Result<TensorType, ModelError> {
    let side = scale * config.encoder.grid();
    Ok(TensorType::f32([1, side, side, config.finder()?.detector.width]))
}

/// Type of tokens of the detector's width.
fn tokens(config: &ModelConfig, count: usize) -> Result<TensorType, ModelError> {
    Ok(TensorType::f32([1, count, config.finder()?.detector.width]))
}

impl Part for FindFeatures {
    type Inputs = Encoded<()>;
    type Outputs = FindLevels<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<Encoded<TensorType>, ModelError> {
        config.finder()?;
        let grid = config.encoder.grid();
        let trunk = match &config.encoder {
            EncoderConfig::RotaryVit { trunk, .. } => TensorType::f32([1, grid, grid, trunk.width]),
            EncoderConfig::Vit { .. } | EncoderConfig::Hiera(_) => {
                return Err(ModelError::NoDetector);
            }
        };
        Ok(Encoded { trunk: Some(trunk), ..Encoded::none() })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        features: Encoded<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<FindLevels<Value<'g>>, ModelError> {
        let detector = Detector::new(config, w)?;
        let trunk = features.trunk.ok_or(ModelError::NoDetector)?;
        let neck = &detector.w.at("backbone.vision_backbone.convs");
        let [level0, level1, level2] = simple_pyramid(trunk, neck, detector.config.width);
        let [_, grid, _, width] = level2.dims();
        let image = level2.reshape([1, grid * grid, width]);
        let fusion = detector.fusion_layer(0).self_attention(image, Some(detector.positions()));
        let no_exemplars = detector.exemplar_tokens(Geometry { boxes: None, points: None }, level2);
        Ok(FindLevels { level0, level1, level2, fusion, no_exemplars })
    }
}

impl Part for EncodeText {
    type Inputs = TextInputs<()>;
    type Outputs = TextTokens<()>;

    fn inputs(&self, _: &ModelConfig) -> Result<TextInputs<TensorType>, ModelError> {
        Ok(TextInputs {
            tokens: TensorType::new(DType::I64, [self.tokens]),
            kept: TensorType::new(DType::I64, [self.kept]),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        TextInputs { tokens, kept }: TextInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<TextTokens<Value<'g>>, ModelError> {
        let finder = config.finder()?;
        let w = &w.at(DETECTOR).at("backbone.language_backbone");
        let text = text_encoder(tokens, kept, w, &finder.text, finder.detector.width);
        Ok(TextTokens { tokens: text.stage("text") })
    }
}

impl Part for EncodeExemplars {
    type Inputs = ExemplarInputs<()>;
    type Outputs = TextTokens<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<ExemplarInputs<TensorType>, ModelError> {
        let labelled = |count: usize, numbers: usize| {
            (count > 0).then(|| LabelledCoordinates {
                coordinates: TensorType::f32([count, numbers]),
                labels: TensorType::new(DType::I64, [count]),
            })
        };
        Ok(ExemplarInputs {
            level2: level(config, 1)?,
            boxes: labelled(self.boxes, 4),
            points: labelled(self.points, 2),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        ExemplarInputs { level2, boxes, points }: ExemplarInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<TextTokens<Value<'g>>, ModelError> {
        let detector = Detector::new(config, w)?;
        let tokens = detector.exemplar_tokens(Geometry { boxes, points }, level2);
        Ok(TextTokens { tokens: tokens.stage("geometry") })
    }
}

impl Part for Detect {
    type Inputs = DetectInputs<()>;
    type Outputs = RawDetections<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<DetectInputs<TensorType>, ModelError> {
        let grid = config.encoder.grid();
        Ok(DetectInputs {
            level0: level(config, 4)?,
            level1: level(config, 2)?,
            fusion: tokens(config, grid * grid)?,
            text: tokens(config, self.text)?,
            exemplars: tokens(config, self.exemplars)?,
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: DetectInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<RawDetections<Value<'g>>, ModelError> {
        let detector = Detector::new(config, w)?;
        let (config, w) = (detector.config, &detector.w);
        let prompt = Value::concat(&[inputs.text, inputs.exemplars], 1);
        let image = detector.fuse(inputs.fusion, prompt);
        let sources = DecoderSources {
            image: KeysAndValues { keys: image + detector.positions(), values: image },
            prompt,
        };
        let found = decoder(sources, &w.at("transformer.decoder"), config);
        let logits = scores(found.queries, prompt, &w.at("dot_prod_scoring"), config);
        let levels = [inputs.level0, inputs.level1];
        let sources = MaskSources { levels, image, prompt, queries: found.queries };
        let masks = segmentation_head(sources, &w.at("segmentation_head"), config);
        Ok(RawDetections {
            logits,
            presence: found.presence,
            boxes: corners(found.boxes).reshape([config.queries, 4]),
            masks: masks.masks,
            semantic: masks.semantic,
        })
    }
}
