//! Tokens and image attend to each other.

use cutout_graph::{Scope, Value};

use crate::config::DecoderConfig;
use crate::layers::{Attended, MlpActivation, layer_norm, mlp};

/// Epsilon of the transformer's norms: PyTorch's default.
const NORM_EPSILON: f32 = 1e-5;

/// Tokens `[prompts, tokens, width]` and the image `[prompts or 1, pixels, width]`.
#[derive(Clone, Copy)]
pub(crate) struct TwoWay<'g> {
    pub(crate) tokens: Value<'g>,
    pub(crate) image: Value<'g>,
}

/// Positions that are added wherever tokens or pixels are compared.
#[derive(Clone, Copy)]
struct Positions<'g> {
    /// The tokens as they were at the start.
    tokens: Value<'g>,
    /// `[1, pixels, width]`.
    image: Value<'g>,
}

/// Runs all layers. While the image is the same for all prompts it has batch one, and everything computed from it alone
/// is computed once.
pub(crate) fn two_way_transformer<'g>(
    start: TwoWay<'g>,
    image_positions: Value<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> TwoWay<'g> {
    let positions = Positions { tokens: start.tokens, image: image_positions };
    let mut state = start;
    for index in 0..config.depth {
        state = layer(state, positions, &w.at("layers").at(index), config, index == 0);
    }
    let attended = Attended {
        query: state.tokens + positions.tokens,
        key: state.image + positions.image,
        value: state.image,
    };
    let mixed = attended.attend(
        &w.at("final_attn_token_to_image"),
        config.width / config.downsample,
        config.heads,
    );
    let tokens = layer_norm(state.tokens + mixed, &w.at("norm_final_attn"), NORM_EPSILON);
    TwoWay { tokens: w.stage("tokens", tokens), image: state.image }
}

/// One layer: tokens attend to themselves, then to the image, pass an MLP; then the image attends to the tokens.
/// In the first layer self-attention replaces the tokens, without positions and without residual.
fn layer<'g>(
    state: TwoWay<'g>,
    positions: Positions<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
    first: bool,
) -> TwoWay<'g> {
    let narrow = config.width / config.downsample;
    let TwoWay { tokens, image } = state;
    let own = &w.at("self_attn");
    let tokens = if first {
        Attended::all(tokens).attend(own, config.width, config.heads)
    } else {
        let placed = tokens + positions.tokens;
        let attended = Attended { query: placed, key: placed, value: tokens };
        tokens + attended.attend(own, config.width, config.heads)
    };
    let tokens = layer_norm(tokens, &w.at("norm1"), NORM_EPSILON);

    let placed_image = image + positions.image;
    let to_image = Attended { query: tokens + positions.tokens, key: placed_image, value: image };
    let tokens = tokens + to_image.attend(&w.at("cross_attn_token_to_image"), narrow, config.heads);
    let tokens = layer_norm(tokens, &w.at("norm2"), NORM_EPSILON);

    let changed = mlp(tokens, &w.at("mlp"), config.mlp_width, MlpActivation::Relu);
    let tokens = layer_norm(tokens + changed, &w.at("norm3"), NORM_EPSILON);

    let to_tokens = Attended { query: placed_image, key: tokens + positions.tokens, value: tokens };
    let image = image + to_tokens.attend(&w.at("cross_attn_image_to_token"), narrow, config.heads);
    let image = layer_norm(image, &w.at("norm4"), NORM_EPSILON);
    TwoWay { tokens: w.stage("tokens", tokens), image: w.stage("image", image) }
}
