//! SAM 3, assembled: which component, which configuration.
//!
//! What is computed is cut by what it depends on, so that nothing is computed twice:
//!
//! | graph | depends on | gives |
//! |---|---|---|
//! | [`trunk_graph`] | the image | features that both necks read |
//! | [`image_side_graph`] | the image | levels, and the part of the fusion that no prompt changes |
//! | [`clicks_graph`] | the image | levels that clicks are answered from |
//! | [`click_image_side_graph`] | the image | what the mask decoder needs of it before any click |
//! | [`click_decoder_graph`] | the image and the clicks | masks |
//! | [`text_graph`] | the phrase | its tokens |
//! | [`geometry_graph`] | the image and the exemplars | their tokens |
//! | [`detector_graph`] | all of these | objects |

mod clicks;
mod load;

use cutout_graph::{BuildError, Builder, Graph, Scope, Value};
use cutout_tensor::DType;

use crate::config::{DetectorConfig, FinderConfig, Sam3Config, VitConfig};
use crate::detector::{DecoderSources, decoder, scores};
use crate::fusion_encoder::{FusionLayer, Memory};
use crate::geometry_encoder::{Geometry, Labelled, corners, geometry_encoder};
use crate::image_encoder::{rotary_vit, simple_pyramid};
use crate::segmentation_head::{MaskSources, segmentation_head};
use crate::sine_positions::grid_positions;
use crate::text_encoder::text_encoder;

pub use clicks::{click_decoder_graph, click_image_side_graph, clicks_graph};
pub(crate) use load::examine;
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

/// Where the detector's weights are.
const DETECTOR: &str = "detector";

/// A graph of the detector in the making, with the configuration it follows.
struct Assembly<'c> {
    builder: Builder,
    trunk: &'c VitConfig,
    finder: &'c FinderConfig,
}

/// A part of the configuration that not every checkpoint has.
#[track_caller]
fn part<'c, T>(part: Option<&'c T>, name: &str) -> Result<&'c T, BuildError> {
    let caller = std::panic::Location::caller();
    part.ok_or_else(|| BuildError {
        origin: caller.to_string(),
        message: format!("this SAM 3 has no {name}"),
    })
}

/// Graph of the image encoder: `pixels: f32[1, size, size, 3]` to `trunk: f32[1, grid, grid, channels]`.
pub fn trunk_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    build_trunk(config).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn trunk_stages(config: &Sam3Config) -> Result<Graph, BuildError> {
    build_trunk(config).finish_with_stages()
}

fn build_trunk(config: &Sam3Config) -> Builder {
    let (builder, size) = (Builder::new(), config.trunk.image_size);
    let pixels = builder.input("pixels", DType::F32, [1, size, size, 3]);
    let w = &builder.weights().at(DETECTOR).at("backbone.vision_backbone.trunk");
    builder.output("trunk", rotary_vit(pixels, w, config));
    builder
}

/// Graph of everything the detector needs of an image and no prompt changes: `trunk` to
/// `level.0: f32[1, 4 grid, 4 grid, width]`, `level.1: f32[1, 2 grid, 2 grid, width]`,
/// `level.2: f32[1, grid, grid, width]` and `fusion: f32[1, grid * grid, width]`, which is the image after it has looked
/// around in the first layer of the fusion.
pub fn image_side_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    Assembly::new(config)?.image_side().finish()
}

/// Graph of the text encoder: `tokens: i64[tokens]` and `kept: i64[kept]`, the numbers of those the detector sees, to
/// `text: f32[1, kept, width]`.
pub fn text_graph(config: &Sam3Config, shape: TextShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.text(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn text_stages(config: &Sam3Config, shape: TextShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.text(shape).finish_with_stages()
}

/// Graph of the geometry encoder: `level.2`; if there are any, `boxes: f32[boxes, 4]` (centre x, centre y, width, height,
/// in 0..1) and `box_labels: i64[boxes]` (1 looked for, 0 not), `points: f32[points, 2]` (x, y) and
/// `point_labels: i64[points]`; to `geometry: f32[1, tokens, width]`.
pub fn geometry_graph(config: &Sam3Config, shape: GeometryShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.geometry(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn geometry_stages(config: &Sam3Config, shape: GeometryShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.geometry(shape).finish_with_stages()
}

/// Graph of the detector: `level.0`, `level.1`, `fusion`, `text` and `geometry` to `logits: f32[queries]`,
/// `presence: f32[1]`, `boxes: f32[queries, 4]` (left, top, right, bottom, in 0..1),
/// `masks: f32[queries, 4 grid, 4 grid]` and `semantic: f32[1, 4 grid, 4 grid]`, all but the boxes before their sigmoid.
pub fn detector_graph(config: &Sam3Config, shape: DetectorShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.detector(shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn detector_stages(config: &Sam3Config, shape: DetectorShape) -> Result<Graph, BuildError> {
    Assembly::new(config)?.detector(shape).finish_with_stages()
}

/// The image encoder's result, as the necks take it.
fn trunk_input<'g>(builder: &'g Builder, config: &VitConfig) -> Value<'g> {
    let (grid, width) = (config.grid(), config.width);
    builder.input("trunk", DType::F32, [1, grid, grid, width])
}

impl<'c> Assembly<'c> {
    #[track_caller]
    fn new(config: &'c Sam3Config) -> Result<Self, BuildError> {
        let finder = part(config.finder.as_ref(), "detector")?;
        Ok(Assembly { builder: Builder::new(), trunk: &config.trunk, finder })
    }

    fn config(&self) -> &'c DetectorConfig {
        &self.finder.detector
    }

    fn weights(&self) -> Scope<'_> {
        self.builder.weights().at(DETECTOR)
    }

    /// Tokens `f32[1, count, width]`.
    fn tokens(&self, name: &str, count: usize) -> Value<'_> {
        self.builder.input(name, DType::F32, [1, count, self.config().width])
    }

    /// A level of the image with `scale` times the grid.
    fn level(&self, name: &str, scale: usize) -> Value<'_> {
        let side = scale * self.trunk.grid();
        self.builder.input(name, DType::F32, [1, side, side, self.config().width])
    }

    fn fusion_layer(&self, index: usize) -> FusionLayer<'_, 'c> {
        let w = self.weights().at("transformer.encoder.layers").at(index);
        FusionLayer { w, config: self.config() }
    }

    fn positions(&self) -> Value<'_> {
        grid_positions(&self.builder, self.trunk.grid(), self.config().width)
    }

    fn image_side(self) -> Builder {
        let trunk = trunk_input(&self.builder, self.trunk);
        let w = &self.weights().at("backbone.vision_backbone.convs");
        let levels = simple_pyramid(trunk, w, self.config().width);
        for (index, level) in levels.into_iter().enumerate() {
            self.builder.output(&format!("level.{index}"), level);
        }
        let [_, grid, _, width] = levels[2].dims();
        let image = levels[2].reshape([1, grid * grid, width]);
        let fusion = self.fusion_layer(0).look_around(image, Some(self.positions()));
        self.builder.output("fusion", fusion);
        self.builder
    }

    fn text(self, shape: TextShape) -> Builder {
        let tokens = self.builder.input("tokens", DType::I64, [shape.tokens]);
        let kept = self.builder.input("kept", DType::I64, [shape.kept]);
        let w = &self.weights().at("backbone.language_backbone");
        let (text, width) = (&self.finder.text, self.config().width);
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
        let tokens = geometry_encoder(geometry, self.level("level.2", 1), w, self.config());
        self.builder.output("geometry", tokens);
        self.builder
    }

    fn detector(self, shape: DetectorShape) -> Builder {
        let (config, w) = (self.config(), &self.weights());
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
        let grid = self.trunk.grid();
        let positions = self.positions();
        let memory = Memory { keys: prompt, values: prompt };
        let mut x = self.tokens("fusion", grid * grid);
        for index in 0..self.config().fusion_depth {
            let layer = self.fusion_layer(index);
            // The first layer has looked around before there was a prompt.
            let seen = if index == 0 { x } else { layer.look_around(x, Some(positions)) };
            x = layer.w.stage("", layer.take_in(seen, memory));
        }
        x
    }
}
