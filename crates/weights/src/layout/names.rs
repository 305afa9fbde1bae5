//! Renaming tables: Hugging Face's names on the left, Meta's on the right.

mod sam3;
mod sam3_prefixes;

use super::identity::{Dialect, Family};
use super::rules::{How, Rule, whole};

/// Contents of a SAM 3 file in Hugging Face's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The detector, with or without the tracker.
    Detector,
    /// The tracker without the detector.
    TrackerAlone,
}

impl Contents {
    /// Decided by the text encoder, which only the detector has.
    pub(super) fn of<'n>(mut names: impl Iterator<Item = &'n str>) -> Contents {
        if names.any(|name| name.contains("text_encoder.")) {
            Contents::Detector
        } else {
            Contents::TrackerAlone
        }
    }
}

/// The tables that are applied to a checkpoint, in order.
pub(super) fn stages(
    family: Family,
    dialect: Dialect,
    contents: Contents,
) -> &'static [&'static [Rule]] {
    match (family, dialect) {
        (Family::Sam3 | Family::Sam3_1, Dialect::Meta) => &[sam3_prefixes::META_DETECTOR],
        (Family::Sam1 | Family::Sam2 | Family::Sam2_1 | Family::Sam2Image, Dialect::Meta) => &[],
        (Family::Sam1, Dialect::HuggingFace) => &[PROMPT_AND_MASK, SAM1],
        (Family::Sam2 | Family::Sam2_1 | Family::Sam2Image, Dialect::HuggingFace) => {
            &[PROMPT_AND_MASK, SAM2, SAM2_PREFIXES]
        }
        (Family::Sam3 | Family::Sam3_1, Dialect::HuggingFace) => match contents {
            Contents::Detector => &SAM3,
            Contents::TrackerAlone => &SAM3_TRACKER,
        },
    }
}

/// Detector and tracker in one file, or the detector alone.
const SAM3: [&[Rule]; 10] = [
    sam3_prefixes::BOTH,
    sam3::VISION,
    sam3::NECKS,
    sam3::TEXT,
    sam3::COMPONENTS,
    sam3::LAYERS,
    PROMPT_AND_MASK,
    SAM2,
    SAM2_PREFIXES,
    sam3::TRACKER,
];

/// The tracker alone.
const SAM3_TRACKER: [&[Rule]; 7] = [
    sam3::TRACKER_ALONE,
    sam3::VISION,
    sam3::NECKS,
    PROMPT_AND_MASK,
    SAM2,
    SAM2_PREFIXES,
    sam3::TRACKER,
];

/// Tensors that are computed from the model's sizes instead of read: name suffix and reason.
const COMPUTED: &[(&str, &str)] =
    &[(".attn.freqs_cis", "the rotation of queries and keys, which follows from their positions")];

/// Reason why a tensor of Meta's files is not read; `None` if it is read.
pub(super) fn computed(name: &str) -> Option<&'static str> {
    COMPUTED.iter().find(|(end, _)| name.ends_with(end)).map(|(_, reason)| *reason)
}

/// Every table.
#[cfg(test)]
pub(super) fn all() -> Vec<&'static [Rule]> {
    let sam3 = [sam3_prefixes::META_DETECTOR, sam3::TRACKER_ALONE, SAM1];
    SAM3.into_iter().chain(sam3).collect()
}

/// The positional matrix of the prompt encoder, which Hugging Face's files hold under one or both of two names.
const fn copy(from: &'static str) -> Rule {
    let to = "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix";
    Rule { from, to, how: How::Copy }
}

/// Prompt encoder and mask decoder, shared by SAM 1 and 2.
const PROMPT_AND_MASK: &[Rule] = &[
    copy("shared_image_embedding.positional_embedding"),
    copy("prompt_encoder.shared_embedding.positional_embedding"),
    whole("prompt_encoder.mask_embed.conv1.*", "prompt_encoder.mask_downscaling.0.*"),
    whole("prompt_encoder.mask_embed.layer_norm1.*", "prompt_encoder.mask_downscaling.1.*"),
    whole("prompt_encoder.mask_embed.conv2.*", "prompt_encoder.mask_downscaling.3.*"),
    whole("prompt_encoder.mask_embed.layer_norm2.*", "prompt_encoder.mask_downscaling.4.*"),
    whole("prompt_encoder.mask_embed.conv3.*", "prompt_encoder.mask_downscaling.6.*"),
    whole("prompt_encoder.point_embed.{}.*", "prompt_encoder.point_embeddings.{}.*"),
    Rule {
        from: "prompt_encoder.point_embed.weight",
        to: "prompt_encoder.point_embeddings.#.weight",
        how: How::Rows,
    },
    whole(
        "mask_decoder.transformer.layers.{}.layer_norm{}.*",
        "mask_decoder.transformer.layers.{}.norm{}.*",
    ),
    whole(
        "mask_decoder.transformer.layer_norm_final_attn.*",
        "mask_decoder.transformer.norm_final_attn.*",
    ),
    whole("mask_decoder.upscale_conv1.*", "mask_decoder.output_upscaling.0.*"),
    whole("mask_decoder.upscale_layer_norm.*", "mask_decoder.output_upscaling.1.*"),
    whole("mask_decoder.upscale_conv2.*", "mask_decoder.output_upscaling.3.*"),
    whole(
        "mask_decoder.output_hypernetworks_mlps.{}.proj_in.*",
        "mask_decoder.output_hypernetworks_mlps.{}.layers.0.*",
    ),
    whole(
        "mask_decoder.output_hypernetworks_mlps.{}.layers.0.*",
        "mask_decoder.output_hypernetworks_mlps.{}.layers.1.*",
    ),
    whole(
        "mask_decoder.output_hypernetworks_mlps.{}.proj_out.*",
        "mask_decoder.output_hypernetworks_mlps.{}.layers.2.*",
    ),
    whole(
        "mask_decoder.iou_prediction_head.proj_in.*",
        "mask_decoder.iou_prediction_head.layers.0.*",
    ),
    whole(
        "mask_decoder.iou_prediction_head.layers.0.*",
        "mask_decoder.iou_prediction_head.layers.1.*",
    ),
    whole(
        "mask_decoder.iou_prediction_head.proj_out.*",
        "mask_decoder.iou_prediction_head.layers.2.*",
    ),
    whole(
        "mask_decoder.pred_obj_score_head.proj_in.*",
        "mask_decoder.pred_obj_score_head.layers.0.*",
    ),
    whole(
        "mask_decoder.pred_obj_score_head.layers.0.*",
        "mask_decoder.pred_obj_score_head.layers.1.*",
    ),
    whole(
        "mask_decoder.pred_obj_score_head.proj_out.*",
        "mask_decoder.pred_obj_score_head.layers.2.*",
    ),
];

/// SAM 1's image encoder.
const SAM1: &[Rule] = &[
    whole("vision_encoder.patch_embed.projection.*", "image_encoder.patch_embed.proj.*"),
    whole("vision_encoder.layers.{}.layer_norm{}.*", "image_encoder.blocks.{}.norm{}.*"),
    whole("vision_encoder.layers.{}.*", "image_encoder.blocks.{}.*"),
    whole("vision_encoder.neck.conv1.*", "image_encoder.neck.0.*"),
    whole("vision_encoder.neck.layer_norm1.*", "image_encoder.neck.1.*"),
    whole("vision_encoder.neck.conv2.*", "image_encoder.neck.2.*"),
    whole("vision_encoder.neck.layer_norm2.*", "image_encoder.neck.3.*"),
    whole("vision_encoder.pos_embed", "image_encoder.pos_embed"),
];

/// SAM 2's image encoder, memory, and the names of its mask decoder that differ from SAM 1's.
const SAM2: &[Rule] = &[
    whole(
        "vision_encoder.backbone.patch_embed.projection.*",
        "image_encoder.trunk.patch_embed.proj.*",
    ),
    whole(
        "vision_encoder.backbone.blocks.{}.layer_norm{}.*",
        "image_encoder.trunk.blocks.{}.norm{}.*",
    ),
    whole(
        "vision_encoder.backbone.blocks.{}.mlp.proj_in.*",
        "image_encoder.trunk.blocks.{}.mlp.layers.0.*",
    ),
    whole(
        "vision_encoder.backbone.blocks.{}.mlp.proj_out.*",
        "image_encoder.trunk.blocks.{}.mlp.layers.1.*",
    ),
    whole("vision_encoder.backbone.*", "image_encoder.trunk.*"),
    whole("vision_encoder.neck.convs.{}.*", "image_encoder.neck.convs.{}.conv.*"),
    whole(
        "mask_decoder.transformer.layers.{}.mlp.proj_in.*",
        "mask_decoder.transformer.layers.{}.mlp.layers.0.*",
    ),
    whole(
        "mask_decoder.transformer.layers.{}.mlp.proj_out.*",
        "mask_decoder.transformer.layers.{}.mlp.layers.1.*",
    ),
    whole(
        "mask_decoder.transformer.layers.{}.self_attn.o_proj.*",
        "mask_decoder.transformer.layers.{}.self_attn.out_proj.*",
    ),
    whole(
        "mask_decoder.transformer.layers.{}.cross_attn_token_to_image.o_proj.*",
        "mask_decoder.transformer.layers.{}.cross_attn_token_to_image.out_proj.*",
    ),
    whole(
        "mask_decoder.transformer.layers.{}.cross_attn_image_to_token.o_proj.*",
        "mask_decoder.transformer.layers.{}.cross_attn_image_to_token.out_proj.*",
    ),
    whole(
        "mask_decoder.transformer.final_attn_token_to_image.o_proj.*",
        "mask_decoder.transformer.final_attn_token_to_image.out_proj.*",
    ),
    whole("memory_attention.layers.{}.layer_norm{}.*", "memory_attention.layers.{}.norm{}.*"),
    whole(
        "memory_attention.layers.{}.self_attn.o_proj.*",
        "memory_attention.layers.{}.self_attn.out_proj.*",
    ),
    whole(
        "memory_attention.layers.{}.cross_attn_image.o_proj.*",
        "memory_attention.layers.{}.cross_attn_image.out_proj.*",
    ),
    whole("memory_attention.layer_norm.*", "memory_attention.norm.*"),
    whole(
        "memory_encoder.mask_downsampler.layers.0.conv.*",
        "memory_encoder.mask_downsampler.encoder.0.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.0.layer_norm.*",
        "memory_encoder.mask_downsampler.encoder.1.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.1.conv.*",
        "memory_encoder.mask_downsampler.encoder.3.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.1.layer_norm.*",
        "memory_encoder.mask_downsampler.encoder.4.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.2.conv.*",
        "memory_encoder.mask_downsampler.encoder.6.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.2.layer_norm.*",
        "memory_encoder.mask_downsampler.encoder.7.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.3.conv.*",
        "memory_encoder.mask_downsampler.encoder.9.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.layers.3.layer_norm.*",
        "memory_encoder.mask_downsampler.encoder.10.*",
    ),
    whole(
        "memory_encoder.mask_downsampler.final_conv.*",
        "memory_encoder.mask_downsampler.encoder.12.*",
    ),
    whole("memory_encoder.feature_projection.*", "memory_encoder.pix_feat_proj.*"),
    whole("memory_encoder.memory_fuser.layers.{}.scale", "memory_encoder.fuser.layers.{}.gamma"),
    whole(
        "memory_encoder.memory_fuser.layers.{}.depthwise_conv.*",
        "memory_encoder.fuser.layers.{}.dwconv.*",
    ),
    whole(
        "memory_encoder.memory_fuser.layers.{}.layer_norm.*",
        "memory_encoder.fuser.layers.{}.norm.*",
    ),
    whole(
        "memory_encoder.memory_fuser.layers.{}.pointwise_conv{}.*",
        "memory_encoder.fuser.layers.{}.pwconv{}.*",
    ),
    whole("memory_encoder.projection.*", "memory_encoder.out_proj.*"),
    whole("object_pointer_proj.proj_in.*", "obj_ptr_proj.layers.0.*"),
    whole("object_pointer_proj.layers.0.*", "obj_ptr_proj.layers.1.*"),
    whole("object_pointer_proj.proj_out.*", "obj_ptr_proj.layers.2.*"),
    whole("temporal_positional_encoding_projection_layer.*", "obj_ptr_tpos_proj.*"),
    whole("no_memory_embedding", "no_mem_embed"),
    whole("no_memory_positional_encoding", "no_mem_pos_enc"),
    whole("memory_temporal_positional_encoding", "maskmem_tpos_enc"),
    whole("no_object_pointer", "no_obj_ptr"),
    whole("occlusion_spatial_embedding_parameter", "no_obj_embed_spatial"),
];

/// SAM 2 prefixes the components taken from SAM 1 with `sam_`.
const SAM2_PREFIXES: &[Rule] = &[
    whole("prompt_encoder.*", "sam_prompt_encoder.*"),
    whole("mask_decoder.*", "sam_mask_decoder.*"),
];
