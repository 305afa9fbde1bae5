//! SAM 3's detector, assembled: which component, which configuration.
//!
//! What is computed is cut by what it depends on, so that nothing is computed twice:
//!
//! | graph | depends on | gives |
//! |---|---|---|
//! | [`trunk_graph`] | the image | features that both necks read |
//! | [`image_side_graph`] | the image | levels, and the part of the fusion that no prompt changes |
//! | [`clicks_graph`] | the image | levels that clicks are answered from |
//! | [`text_graph`] | the phrase | its tokens |
//! | [`geometry_graph`] | the image and the exemplars | their tokens |
//! | [`detector_graph`] | all of these | objects |

mod load;

use cutout_graph::{BuildError, Builder, Graph, Scope, Value};
use cutout_tensor::DType;

use crate::config::Sam3Config;
use crate::detector::{DecoderSources, decoder, scores};
use crate::fusion_encoder::{FusionLayer, Memory};
use crate::geometry_encoder::{Geometry, Labelled, corners, geometry_encoder};
use crate::image_encoder::{rotary_vit, simple_pyramid};
use crate::segmentation_head::{MaskSources, segmentation_head};
use crate::sine_positions::grid_positions;
use crate::text_encoder::text_encoder;

pub use load::{Loaded, load};

/// Number of tokens that a text graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextShape {
    /// Tokens of the phrase, start and end included.
    pub tokens: usize,
    /// Those the detector gets to see.
    pub kept: usize,
}

/// Number of exemplars that a geometry graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeometryShape {
    /// Boxes.
    pub boxes: usize,
    /// Points.
    pub points: usize,
}

impl GeometryShape {
    /// Tokens that the exemplars become: there is one of the encoder's own.
    pub fn tokens(&self) -> usize {
        self.boxes + self.points + 1
    }
}

/// Number of prompt tokens that a detector graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DetectorShape {
    /// Tokens of the phrase.
    pub text: usize,
    /// Tokens of the exemplars.
    pub geometry: usize,
}

/// A graph in the making, with the configuration it follows.
struct Assembly<'c> {
    builder: Builder,
    config: &'c Sam3Config,
}

/// Graph of the image encoder: `pixels: f32[1, size, size, 3]` to `trunk: f32[1, grid, grid, channels]`.
pub fn trunk_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    Assembly::new(config).trunk().finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn trunk_stages(config: &Sam3Config) -> Result<Graph, BuildError> {
    Assembly::new(config).trunk().finish_with_stages()
}

/// Graph of everything the detector needs of an image and no prompt changes: `trunk` to
/// `level.0: f32[1, 4 grid, 4 grid, width]`, `level.1: f32[1, 2 grid, 2 grid, width]`,
/// `level.2: f32[1, grid, grid, width]` and `fusion: f32[1, grid * grid, width]`, which is the image after it has looked
/// around in the first layer of the fusion.
pub fn image_side_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    Assembly::new(config).image_side().finish()
}

/// Graph of the levels that clicks are answered from: `trunk` to `clicks.0: f32[1, 4 grid, 4 grid, width]`,
/// `clicks.1: f32[1, 2 grid, 2 grid, width]` and `clicks.2: f32[1, grid, grid, width]`.
pub fn clicks_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    Assembly::new(config).clicks().finish()
}

/// Graph of the text encoder: `tokens: i64[tokens]` and `kept: i64[kept]`, the numbers of those the detector sees, to
/// `text: f32[1, kept, width]`.
pub fn text_graph(config: &Sam3Config, shape: TextShape) -> Result<Graph, BuildError> {
    Assembly::new(config).text(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn text_stages(config: &Sam3Config, shape: TextShape) -> Result<Graph, BuildError> {
    Assembly::new(config).text(shape).finish_with_stages()
}

/// Graph of the geometry encoder: `level.2`; if there are any, `boxes: f32[boxes, 4]` (centre x, centre y, width, height,
/// in 0..1) and `box_labels: i64[boxes]` (1 looked for, 0 not), `points: f32[points, 2]` (x, y) and
/// `point_labels: i64[points]`; to `geometry: f32[1, tokens, width]`.
pub fn geometry_graph(config: &Sam3Config, shape: GeometryShape) -> Result<Graph, BuildError> {
    Assembly::new(config).geometry(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn geometry_stages(config: &Sam3Config, shape: GeometryShape) -> Result<Graph, BuildError> {
    Assembly::new(config).geometry(shape).finish_with_stages()
}

/// Graph of the detector: `level.0`, `level.1`, `fusion`, `text` and `geometry` to `logits: f32[queries]`,
/// `presence: f32[1]`, `boxes: f32[queries, 4]` (left, top, right, bottom, in 0..1),
/// `masks: f32[queries, 4 grid, 4 grid]` and `semantic: f32[1, 4 grid, 4 grid]`, all but the boxes before their sigmoid.
pub fn detector_graph(config: &Sam3Config, shape: DetectorShape) -> Result<Graph, BuildError> {
    Assembly::new(config).detector(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn detector_stages(config: &Sam3Config, shape: DetectorShape) -> Result<Graph, BuildError> {
    Assembly::new(config).detector(shape).finish_with_stages()
}

impl<'c> Assembly<'c> {
    fn new(config: &'c Sam3Config) -> Self {
        Assembly { builder: Builder::new(), config }
    }

    fn weights(&self) -> Scope<'_> {
        self.builder.weights().at("detector")
    }

    /// Tokens `f32[1, count, width]`.
    fn tokens(&self, name: &str, count: usize) -> Value<'_> {
        self.builder.input(name, DType::F32, [1, count, self.config.detector.width])
    }

    /// A level of the image with `scale` times the grid.
    fn level(&self, name: &str, scale: usize) -> Value<'_> {
        let side = scale * self.config.trunk.grid();
        self.builder.input(name, DType::F32, [1, side, side, self.config.detector.width])
    }

    /// The levels of one neck.
    fn levels(&self, neck: &str) -> [Value<'_>; 3] {
        let (grid, width) = (self.config.trunk.grid(), self.config.trunk.width);
        let trunk = self.builder.input("trunk", DType::F32, [1, grid, grid, width]);
        let w = &self.weights().at("backbone.vision_backbone").at(neck);
        simple_pyramid(trunk, w, self.config.detector.width)
    }

    fn fusion_layer(&self, index: usize) -> FusionLayer<'_, 'c> {
        let w = self.weights().at("transformer.encoder.layers").at(index);
        FusionLayer { w, config: &self.config.detector }
    }

    fn positions(&self) -> Value<'_> {
        grid_positions(&self.builder, self.config.trunk.grid(), self.config.detector.width)
    }

    fn trunk(self) -> Builder {
        let size = self.config.trunk.image_size;
        let pixels = self.builder.input("pixels", DType::F32, [1, size, size, 3]);
        let w = &self.weights().at("backbone.vision_backbone.trunk");
        self.builder.output("trunk", rotary_vit(pixels, w, &self.config.trunk));
        self.builder
    }

    fn image_side(self) -> Builder {
        let levels = self.levels("convs");
        for (index, level) in levels.into_iter().enumerate() {
            self.builder.output(&format!("level.{index}"), level);
        }
        let [_, grid, _, width] = levels[2].dims();
        let image = levels[2].reshape([1, grid * grid, width]);
        let fusion = self.fusion_layer(0).look_around(image, Some(self.positions()));
        self.builder.output("fusion", fusion);
        self.builder
    }

    fn clicks(self) -> Builder {
        for (index, level) in self.levels("sam2_convs").into_iter().enumerate() {
            self.builder.output(&format!("clicks.{index}"), level);
        }
        self.builder
    }

    fn text(self, shape: TextShape) -> Builder {
        let tokens = self.builder.input("tokens", DType::I64, [shape.tokens]);
        let kept = self.builder.input("kept", DType::I64, [shape.kept]);
        let w = &self.weights().at("backbone.language_backbone");
        let (text, width) = (&self.config.text, self.config.detector.width);
        self.builder.output("text", text_encoder(tokens, kept, w, text, width));
        self.builder
    }

    fn geometry(self, shape: GeometryShape) -> Builder {
        let labelled = |names: [&str; 2], count: usize, numbers: usize| {
            (count > 0).then(|| Labelled {
                places: self.builder.input(names[0], DType::F32, [count, numbers]),
                labels: self.builder.input(names[1], DType::I64, [count]),
            })
        };
        let geometry = Geometry {
            boxes: labelled(["boxes", "box_labels"], shape.boxes, 4),
            points: labelled(["points", "point_labels"], shape.points, 2),
        };
        let w = &self.weights().at("geometry_encoder");
        let tokens = geometry_encoder(geometry, self.level("level.2", 1), w, &self.config.detector);
        self.builder.output("geometry", tokens);
        self.builder
    }

    fn detector(self, shape: DetectorShape) -> Builder {
        let (config, w) = (&self.config.detector, &self.weights());
        let levels = [self.level("level.0", 4), self.level("level.1", 2)];
        let text = self.tokens("text", shape.text);
        let prompt = Value::concat(&[text, self.tokens("geometry", shape.geometry)], 1);
        let image = self.fuse(prompt);
        let sources = DecoderSources {
            image: Memory { keys: image + self.positions(), values: image },
            prompt,
        };
        let found = decoder(sources, &w.at("transformer.decoder"), config);
        let logits = scores(found.queries, prompt, &w.at("dot_prod_scoring"), config);
        let sources = MaskSources { levels, image, prompt, queries: found.queries };
        let masks = segmentation_head(sources, &w.at("segmentation_head"), config);
        let boxes = corners(found.boxes).reshape([config.queries, 4]);
        self.builder.output("logits", logits);
        self.builder.output("presence", found.presence);
        self.builder.output("boxes", boxes);
        self.builder.output("masks", masks.masks);
        self.builder.output("semantic", masks.semantic);
        self.builder
    }

    /// The image with the prompt in it, `[1, grid * grid, width]`.
    fn fuse<'g>(&'g self, prompt: Value<'g>) -> Value<'g> {
        let grid = self.config.trunk.grid();
        let positions = self.positions();
        let memory = Memory { keys: prompt, values: prompt };
        let mut x = self.tokens("fusion", grid * grid);
        for index in 0..self.config.detector.fusion_depth {
            let layer = self.fusion_layer(index);
            // The first layer has looked around before there was a prompt.
            let seen = if index == 0 { x } else { layer.look_around(x, Some(positions)) };
            x = layer.w.stage("", layer.take_in(seen, memory));
        }
        x
    }
}
