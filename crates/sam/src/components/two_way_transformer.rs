//! The two-way transformer of the mask decoder.

use cutout_graph::{Scope, Value, ports};

use crate::components::layers::{
    Attended, AttentionOperand, AttentionSize, Mlp, MlpActivation, MlpNames, layer_norm, linear,
};
use crate::model::config::{DecoderConfig, DecoderForm};

/// Epsilon of the transformer's norms: PyTorch's default.
const NORM_EPSILON: f32 = 1e-5;

/// Tokens `[prompts, tokens, width]` and the image `[prompts or 1, pixels, width]`.
#[derive(Clone, Copy)]
pub(crate) struct TwoWay<'g> {
    pub(crate) tokens: Value<'g>,
    pub(crate) image: Value<'g>,
}

ports! {
    /// Projections of the image in the first layer, each `[1, pixels, width / downsample]`: the same for all prompts
    /// without a mask.
    pub struct ImageOperands {
        /// Keys that tokens attend to.
        key,
        /// Values that tokens attend to.
        value,
        /// Queries with which the image attends to tokens.
        query,
    }
}

/// Positions added to queries and keys.
#[derive(Clone, Copy)]
struct Positions<'g> {
    /// The tokens as they were at the start.
    tokens: Value<'g>,
    /// `[1, pixels, width]`.
    image: Value<'g>,
}

impl DecoderConfig {
    /// Attention between tokens and image.
    fn cross_attention_size(&self) -> AttentionSize {
        let width = self.width / self.downsample;
        AttentionSize { width, heads: self.heads, outputs: self.width }
    }

    /// Attention among tokens.
    fn self_attention_size(&self) -> AttentionSize {
        AttentionSize { width: self.width, heads: self.heads, outputs: self.width }
    }

    /// The MLP of the tokens.
    fn mlp(&self) -> Mlp {
        let names = match self.form {
            DecoderForm::Sam1 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => MlpNames::Lin,
            DecoderForm::Sam2 => MlpNames::Layers,
        };
        Mlp { hidden: self.mlp_width, activation: MlpActivation::Relu, names }
    }
}

/// Projects the image, including its dense prompt, for the first layer.
pub(crate) fn image_operands<'g>(
    image: Value<'g>,
    positions: Value<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> ImageOperands<Value<'g>> {
    let w = &w.at("layers").at(0);
    let width = config.cross_attention_size().width;
    let with_positions = image + positions;
    let to_image = &w.at("cross_attn_token_to_image");
    ImageOperands {
        key: linear(with_positions, &to_image.at("k_proj"), width),
        value: linear(image, &to_image.at("v_proj"), width),
        query: linear(with_positions, &w.at("cross_attn_image_to_token").at("q_proj"), width),
    }
}

/// Runs all layers. While the image is the same for all prompts it has batch one; `first` holds its projections in the
/// first layer.
pub(crate) fn two_way_transformer<'g>(
    start: TwoWay<'g>,
    image_positions: Value<'g>,
    first: ImageOperands<Value<'g>>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> TwoWay<'g> {
    let positions = Positions { tokens: start.tokens, image: image_positions };
    let mut state = start;
    for index in 0..config.depth {
        let operands = (index == 0).then(|| first.clone());
        state = layer(state, positions, operands, &w.at("layers").at(index), config);
    }
    let attended =
        Attended::raw(state.tokens + positions.tokens, state.image + positions.image, state.image);
    let mixed = attended.attend(&w.at("final_attn_token_to_image"), config.cross_attention_size());
    let tokens = layer_norm(state.tokens + mixed, &w.at("norm_final_attn"), NORM_EPSILON);
    TwoWay { tokens: w.stage("tokens", tokens), image: state.image }
}

/// One layer: tokens attend to themselves, then to the image, pass an MLP; then the image attends to the tokens.
/// In the first layer (which has `first`) self-attention replaces the tokens, without positions and without residual.
fn layer<'g>(
    state: TwoWay<'g>,
    positions: Positions<'g>,
    first: Option<ImageOperands<Value<'g>>>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> TwoWay<'g> {
    let TwoWay { tokens, image } = state;
    let own = &w.at("self_attn");
    let tokens = match &first {
        Some(_) => Attended::raw(tokens, tokens, tokens).attend(own, config.self_attention_size()),
        None => {
            let with_positions = tokens + positions.tokens;
            tokens
                + Attended::raw(with_positions, with_positions, tokens)
                    .attend(own, config.self_attention_size())
        }
    };
    let tokens = layer_norm(tokens, &w.at("norm1"), NORM_EPSILON);

    let (key, value, query) = match first {
        Some(ImageOperands { key, value, query }) => {
            let projected = AttentionOperand::Projected;
            (projected(key), projected(value), projected(query))
        }
        None => {
            let with_positions = AttentionOperand::Raw(image + positions.image);
            (with_positions, AttentionOperand::Raw(image), with_positions)
        }
    };
    let to_image = Attended { query: AttentionOperand::Raw(tokens + positions.tokens), key, value };
    let tokens =
        tokens + to_image.attend(&w.at("cross_attn_token_to_image"), config.cross_attention_size());
    let tokens = layer_norm(tokens, &w.at("norm2"), NORM_EPSILON);

    let changed = config.mlp().apply(tokens, &w.at("mlp"));
    let tokens = layer_norm(tokens + changed, &w.at("norm3"), NORM_EPSILON);

    let to_tokens = Attended {
        query,
        key: AttentionOperand::Raw(tokens + positions.tokens),
        value: AttentionOperand::Raw(tokens),
    };
    let image =
        image + to_tokens.attend(&w.at("cross_attn_image_to_token"), config.cross_attention_size());
    let image = layer_norm(image, &w.at("norm4"), NORM_EPSILON);
    TwoWay { tokens: w.stage("tokens", tokens), image: w.stage("image", image) }
}
