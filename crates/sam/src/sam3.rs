//! SAM 3's detector, assembled: which component, which configuration.
//!
//! What is computed is cut by what it depends on, so that nothing is computed twice:
//!
//! | graph | depends on | gives |
//! |---|---|---|
//! | [`trunk_graph`] | the image | `trunk` |
//! | [`clicks_graph`] | the image | the levels that clicks are answered from |

use cutout_graph::{BuildError, Builder, Graph, Scope};
use cutout_tensor::DType;

use crate::config::Sam3Config;
use crate::image_encoder::{rotary_vit, simple_pyramid};

/// Graph of the image encoder: `pixels: f32[1, size, size, 3]` to `trunk: f32[1, grid, grid, channels]`.
pub fn trunk_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    build_trunk(config).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn trunk_stages(config: &Sam3Config) -> Result<Graph, BuildError> {
    build_trunk(config).finish_with_stages()
}

fn build_trunk(config: &Sam3Config) -> Builder {
    let builder = Builder::new();
    let size = config.trunk.image_size;
    let pixels = builder.input("pixels", DType::F32, [1, size, size, 3]);
    let trunk = rotary_vit(pixels, &vision(&builder).at("trunk"), &config.trunk);
    builder.output("trunk", trunk);
    builder
}

/// Graph of the levels that click prompts are answered from: `trunk` to `clicks.0: f32[1, 4 grid, 4 grid, width]`,
/// `clicks.1: f32[1, 2 grid, 2 grid, width]` and `clicks.2: f32[1, grid, grid, width]`.
pub fn clicks_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    let trunk = trunk_input(&builder, config);
    let levels = simple_pyramid(trunk, &vision(&builder).at("sam2_convs"), config.detector.width);
    for (index, level) in levels.into_iter().enumerate() {
        builder.output(&format!("clicks.{index}"), level);
    }
    builder.finish()
}

/// The weights of the vision backbone.
fn vision(builder: &Builder) -> Scope<'_> {
    builder.weights().at("detector.backbone.vision_backbone")
}

fn trunk_input<'g>(builder: &'g Builder, config: &Sam3Config) -> cutout_graph::Value<'g> {
    let (grid, width) = (config.trunk.grid(), config.trunk.width);
    builder.input("trunk", DType::F32, [1, grid, grid, width])
}
