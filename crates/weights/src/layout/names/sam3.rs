//! SAM 3's tables. Hugging Face's files hold the detector, the tracker, or both.

use super::super::rules::{How, Rule, whole};

/// Queries, keys or values (`index` 0, 1, 2), which Meta stacks in one tensor.
const fn stacked(from: &'static str, to: &'static str, index: usize) -> Rule {
    Rule { from, to, how: How::Stacked(index) }
}

/// A file with the tracker only: either with the names of the model, whose neck is the one for clicks, or, as `transformers`
/// saves it, with the names that the same tensors have in a file with both.
pub(in crate::layout) const TRACKER_ALONE: &[Rule] = &[
    whole("vision_encoder.neck.*", "clicks.neck.*"),
    whole("detector_model.*", "*"),
    whole("tracker_model.*", "*"),
    whole("tracker_neck.*", "clicks.neck.*"),
];

/// The image encoder and its two necks.
pub(in crate::layout) const VISION: &[Rule] = &[
    whole(
        "vision_encoder.backbone.embeddings.position_embeddings",
        "detector.backbone.vision_backbone.trunk.pos_embed",
    ),
    whole(
        "vision_encoder.backbone.embeddings.patch_embeddings.projection.*",
        "detector.backbone.vision_backbone.trunk.patch_embed.proj.*",
    ),
    whole(
        "vision_encoder.backbone.layer_norm.*",
        "detector.backbone.vision_backbone.trunk.ln_pre.*",
    ),
    whole(
        "vision_encoder.backbone.layers.{}.layer_norm{}.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.norm{}.*",
    ),
    stacked(
        "vision_encoder.backbone.layers.{}.attention.q_proj.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.attn.qkv.*",
        0,
    ),
    stacked(
        "vision_encoder.backbone.layers.{}.attention.k_proj.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.attn.qkv.*",
        1,
    ),
    stacked(
        "vision_encoder.backbone.layers.{}.attention.v_proj.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.attn.qkv.*",
        2,
    ),
    whole(
        "vision_encoder.backbone.layers.{}.attention.o_proj.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.attn.proj.*",
    ),
    whole(
        "vision_encoder.backbone.layers.{}.mlp.*",
        "detector.backbone.vision_backbone.trunk.blocks.{}.mlp.*",
    ),
    whole("vision_encoder.neck.fpn_layers.*", "detector.backbone.vision_backbone.convs.*"),
    whole("clicks.neck.fpn_layers.*", "detector.backbone.vision_backbone.sam2_convs.*"),
];

/// The convolutions of both necks; applied after [`VISION`].
pub(in crate::layout) const NECKS: &[Rule] = &[
    whole(
        "detector.backbone.vision_backbone.convs.0.scale_layers.0.*",
        "detector.backbone.vision_backbone.convs.0.dconv_2x2_0.*",
    ),
    whole(
        "detector.backbone.vision_backbone.convs.0.scale_layers.2.*",
        "detector.backbone.vision_backbone.convs.0.dconv_2x2_1.*",
    ),
    whole(
        "detector.backbone.vision_backbone.convs.1.scale_layers.0.*",
        "detector.backbone.vision_backbone.convs.1.dconv_2x2.*",
    ),
    whole(
        "detector.backbone.vision_backbone.convs.{}.proj1.*",
        "detector.backbone.vision_backbone.convs.{}.conv_1x1.*",
    ),
    whole(
        "detector.backbone.vision_backbone.convs.{}.proj2.*",
        "detector.backbone.vision_backbone.convs.{}.conv_3x3.*",
    ),
    whole(
        "detector.backbone.vision_backbone.sam2_convs.0.scale_layers.0.*",
        "detector.backbone.vision_backbone.sam2_convs.0.dconv_2x2_0.*",
    ),
    whole(
        "detector.backbone.vision_backbone.sam2_convs.0.scale_layers.2.*",
        "detector.backbone.vision_backbone.sam2_convs.0.dconv_2x2_1.*",
    ),
    whole(
        "detector.backbone.vision_backbone.sam2_convs.1.scale_layers.0.*",
        "detector.backbone.vision_backbone.sam2_convs.1.dconv_2x2.*",
    ),
    whole(
        "detector.backbone.vision_backbone.sam2_convs.{}.proj1.*",
        "detector.backbone.vision_backbone.sam2_convs.{}.conv_1x1.*",
    ),
    whole(
        "detector.backbone.vision_backbone.sam2_convs.{}.proj2.*",
        "detector.backbone.vision_backbone.sam2_convs.{}.conv_3x3.*",
    ),
];

/// The text encoder.
pub(in crate::layout) const TEXT: &[Rule] = &[
    whole(
        "text_encoder.text_model.embeddings.token_embedding.*",
        "detector.backbone.language_backbone.encoder.token_embedding.*",
    ),
    whole(
        "text_encoder.text_model.embeddings.position_embedding.weight",
        "detector.backbone.language_backbone.encoder.positional_embedding",
    ),
    stacked(
        "text_encoder.text_model.encoder.layers.{}.self_attn.q_proj.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.attn.in_proj_*",
        0,
    ),
    stacked(
        "text_encoder.text_model.encoder.layers.{}.self_attn.k_proj.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.attn.in_proj_*",
        1,
    ),
    stacked(
        "text_encoder.text_model.encoder.layers.{}.self_attn.v_proj.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.attn.in_proj_*",
        2,
    ),
    whole(
        "text_encoder.text_model.encoder.layers.{}.self_attn.out_proj.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.attn.out_proj.*",
    ),
    whole(
        "text_encoder.text_model.encoder.layers.{}.layer_norm{}.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.ln_{}.*",
    ),
    whole(
        "text_encoder.text_model.encoder.layers.{}.mlp.fc1.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.mlp.c_fc.*",
    ),
    whole(
        "text_encoder.text_model.encoder.layers.{}.mlp.fc2.*",
        "detector.backbone.language_backbone.encoder.transformer.resblocks.{}.mlp.c_proj.*",
    ),
    whole(
        "text_encoder.text_model.final_layer_norm.*",
        "detector.backbone.language_backbone.encoder.ln_final.*",
    ),
    whole("text_projection.*", "detector.backbone.language_backbone.resizer.*"),
];

/// Names of geometry encoder, fusion encoder, decoder, scoring and segmentation head.
pub(in crate::layout) const COMPONENTS: &[Rule] = &[
    whole("geometry_encoder.vision_layer_norm.*", "detector.geometry_encoder.img_pre_norm.*"),
    whole("geometry_encoder.prompt_layer_norm.*", "detector.geometry_encoder.norm.*"),
    whole("geometry_encoder.output_layer_norm.*", "detector.geometry_encoder.encode_norm.*"),
    whole("geometry_encoder.layers.{}.*", "detector.geometry_encoder.encode.{}.*"),
    whole("geometry_encoder.*", "detector.geometry_encoder.*"),
    whole("detr_encoder.layers.{}.*", "detector.transformer.encoder.layers.{}.*"),
    whole(
        "detr_decoder.layers.{}.self_attn_layer_norm.*",
        "detector.transformer.decoder.layers.{}.norm2.*",
    ),
    whole(
        "detr_decoder.layers.{}.text_cross_attn_layer_norm.*",
        "detector.transformer.decoder.layers.{}.catext_norm.*",
    ),
    whole(
        "detr_decoder.layers.{}.vision_cross_attn_layer_norm.*",
        "detector.transformer.decoder.layers.{}.norm1.*",
    ),
    whole(
        "detr_decoder.layers.{}.mlp_layer_norm.*",
        "detector.transformer.decoder.layers.{}.norm3.*",
    ),
    whole(
        "detr_decoder.layers.{}.text_cross_attn.*",
        "detector.transformer.decoder.layers.{}.ca_text.*",
    ),
    whole(
        "detr_decoder.layers.{}.vision_cross_attn.*",
        "detector.transformer.decoder.layers.{}.cross_attn.*",
    ),
    whole("detr_decoder.layers.{}.*", "detector.transformer.decoder.layers.{}.*"),
    whole("detr_decoder.output_layer_norm.*", "detector.transformer.decoder.norm.*"),
    whole("detr_decoder.box_head.*", "detector.transformer.decoder.bbox_embed.*"),
    whole("detr_decoder.presence_head.*", "detector.transformer.decoder.presence_token_head.*"),
    whole(
        "detr_decoder.presence_layer_norm.*",
        "detector.transformer.decoder.presence_token_out_norm.*",
    ),
    whole("detr_decoder.box_rpb_embed_x.*", "detector.transformer.decoder.boxRPB_embed_x.*"),
    whole("detr_decoder.box_rpb_embed_y.*", "detector.transformer.decoder.boxRPB_embed_y.*"),
    whole("detr_decoder.*", "detector.transformer.decoder.*"),
    whole("mask_decoder.pixel_decoder.*", "detector.segmentation_head.pixel_decoder.*"),
    whole("mask_decoder.mask_embedder.*", "detector.segmentation_head.mask_predictor.mask_embed.*"),
    whole("mask_decoder.instance_projection.*", "detector.segmentation_head.instance_seg_head.*"),
    whole("mask_decoder.semantic_projection.*", "detector.segmentation_head.semantic_seg_head.*"),
    whole("mask_decoder.prompt_cross_attn.*", "detector.segmentation_head.cross_attend_prompt.*"),
    whole("mask_decoder.prompt_cross_attn_norm.*", "detector.segmentation_head.cross_attn_norm.*"),
    whole(
        "dot_product_scoring.text_mlp_out_norm.*",
        "detector.dot_prod_scoring.prompt_mlp.out_norm.*",
    ),
    whole("dot_product_scoring.text_mlp.*", "detector.dot_prod_scoring.prompt_mlp.*"),
    whole("dot_product_scoring.text_proj.*", "detector.dot_prod_scoring.prompt_proj.*"),
    whole("dot_product_scoring.query_proj.*", "detector.dot_prod_scoring.hs_proj.*"),
];

/// Layers of these components; applied after [`COMPONENTS`]. Meta stacks queries, keys and values, and counts from 0.
pub(in crate::layout) const LAYERS: &[Rule] = &[
    stacked(
        "detector.geometry_encoder.encode.{}.self_attn.q_proj.*",
        "detector.geometry_encoder.encode.{}.self_attn.in_proj_*",
        0,
    ),
    stacked(
        "detector.geometry_encoder.encode.{}.self_attn.k_proj.*",
        "detector.geometry_encoder.encode.{}.self_attn.in_proj_*",
        1,
    ),
    stacked(
        "detector.geometry_encoder.encode.{}.self_attn.v_proj.*",
        "detector.geometry_encoder.encode.{}.self_attn.in_proj_*",
        2,
    ),
    whole(
        "detector.geometry_encoder.encode.{}.self_attn.o_proj.*",
        "detector.geometry_encoder.encode.{}.self_attn.out_proj.*",
    ),
    stacked(
        "detector.geometry_encoder.encode.{}.cross_attn.q_proj.*",
        "detector.geometry_encoder.encode.{}.cross_attn_image.in_proj_*",
        0,
    ),
    stacked(
        "detector.geometry_encoder.encode.{}.cross_attn.k_proj.*",
        "detector.geometry_encoder.encode.{}.cross_attn_image.in_proj_*",
        1,
    ),
    stacked(
        "detector.geometry_encoder.encode.{}.cross_attn.v_proj.*",
        "detector.geometry_encoder.encode.{}.cross_attn_image.in_proj_*",
        2,
    ),
    whole(
        "detector.geometry_encoder.encode.{}.cross_attn.o_proj.*",
        "detector.geometry_encoder.encode.{}.cross_attn_image.out_proj.*",
    ),
    whole(
        "detector.geometry_encoder.encode.{}.layer_norm{}.*",
        "detector.geometry_encoder.encode.{}.norm{}.*",
    ),
    whole(
        "detector.geometry_encoder.encode.{}.mlp.fc1.*",
        "detector.geometry_encoder.encode.{}.linear1.*",
    ),
    whole(
        "detector.geometry_encoder.encode.{}.mlp.fc2.*",
        "detector.geometry_encoder.encode.{}.linear2.*",
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.self_attn.q_proj.*",
        "detector.transformer.encoder.layers.{}.self_attn.in_proj_*",
        0,
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.self_attn.k_proj.*",
        "detector.transformer.encoder.layers.{}.self_attn.in_proj_*",
        1,
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.self_attn.v_proj.*",
        "detector.transformer.encoder.layers.{}.self_attn.in_proj_*",
        2,
    ),
    whole(
        "detector.transformer.encoder.layers.{}.self_attn.o_proj.*",
        "detector.transformer.encoder.layers.{}.self_attn.out_proj.*",
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.cross_attn.q_proj.*",
        "detector.transformer.encoder.layers.{}.cross_attn_image.in_proj_*",
        0,
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.cross_attn.k_proj.*",
        "detector.transformer.encoder.layers.{}.cross_attn_image.in_proj_*",
        1,
    ),
    stacked(
        "detector.transformer.encoder.layers.{}.cross_attn.v_proj.*",
        "detector.transformer.encoder.layers.{}.cross_attn_image.in_proj_*",
        2,
    ),
    whole(
        "detector.transformer.encoder.layers.{}.cross_attn.o_proj.*",
        "detector.transformer.encoder.layers.{}.cross_attn_image.out_proj.*",
    ),
    whole(
        "detector.transformer.encoder.layers.{}.layer_norm{}.*",
        "detector.transformer.encoder.layers.{}.norm{}.*",
    ),
    whole(
        "detector.transformer.encoder.layers.{}.mlp.fc1.*",
        "detector.transformer.encoder.layers.{}.linear1.*",
    ),
    whole(
        "detector.transformer.encoder.layers.{}.mlp.fc2.*",
        "detector.transformer.encoder.layers.{}.linear2.*",
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.self_attn.q_proj.*",
        "detector.transformer.decoder.layers.{}.self_attn.in_proj_*",
        0,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.self_attn.k_proj.*",
        "detector.transformer.decoder.layers.{}.self_attn.in_proj_*",
        1,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.self_attn.v_proj.*",
        "detector.transformer.decoder.layers.{}.self_attn.in_proj_*",
        2,
    ),
    whole(
        "detector.transformer.decoder.layers.{}.self_attn.o_proj.*",
        "detector.transformer.decoder.layers.{}.self_attn.out_proj.*",
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.ca_text.q_proj.*",
        "detector.transformer.decoder.layers.{}.ca_text.in_proj_*",
        0,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.ca_text.k_proj.*",
        "detector.transformer.decoder.layers.{}.ca_text.in_proj_*",
        1,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.ca_text.v_proj.*",
        "detector.transformer.decoder.layers.{}.ca_text.in_proj_*",
        2,
    ),
    whole(
        "detector.transformer.decoder.layers.{}.ca_text.o_proj.*",
        "detector.transformer.decoder.layers.{}.ca_text.out_proj.*",
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.cross_attn.q_proj.*",
        "detector.transformer.decoder.layers.{}.cross_attn.in_proj_*",
        0,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.cross_attn.k_proj.*",
        "detector.transformer.decoder.layers.{}.cross_attn.in_proj_*",
        1,
    ),
    stacked(
        "detector.transformer.decoder.layers.{}.cross_attn.v_proj.*",
        "detector.transformer.decoder.layers.{}.cross_attn.in_proj_*",
        2,
    ),
    whole(
        "detector.transformer.decoder.layers.{}.cross_attn.o_proj.*",
        "detector.transformer.decoder.layers.{}.cross_attn.out_proj.*",
    ),
    whole(
        "detector.transformer.decoder.layers.{}.mlp.fc1.*",
        "detector.transformer.decoder.layers.{}.linear1.*",
    ),
    whole(
        "detector.transformer.decoder.layers.{}.mlp.fc2.*",
        "detector.transformer.decoder.layers.{}.linear2.*",
    ),
    stacked(
        "detector.segmentation_head.cross_attend_prompt.q_proj.*",
        "detector.segmentation_head.cross_attend_prompt.in_proj_*",
        0,
    ),
    stacked(
        "detector.segmentation_head.cross_attend_prompt.k_proj.*",
        "detector.segmentation_head.cross_attend_prompt.in_proj_*",
        1,
    ),
    stacked(
        "detector.segmentation_head.cross_attend_prompt.v_proj.*",
        "detector.segmentation_head.cross_attend_prompt.in_proj_*",
        2,
    ),
    whole(
        "detector.segmentation_head.cross_attend_prompt.o_proj.*",
        "detector.segmentation_head.cross_attend_prompt.out_proj.*",
    ),
    whole(
        "detector.transformer.decoder.bbox_embed.layer1.*",
        "detector.transformer.decoder.bbox_embed.layers.0.*",
    ),
    whole(
        "detector.transformer.decoder.bbox_embed.layer2.*",
        "detector.transformer.decoder.bbox_embed.layers.1.*",
    ),
    whole(
        "detector.transformer.decoder.bbox_embed.layer3.*",
        "detector.transformer.decoder.bbox_embed.layers.2.*",
    ),
    whole(
        "detector.transformer.decoder.presence_token_head.layer1.*",
        "detector.transformer.decoder.presence_token_head.layers.0.*",
    ),
    whole(
        "detector.transformer.decoder.presence_token_head.layer2.*",
        "detector.transformer.decoder.presence_token_head.layers.1.*",
    ),
    whole(
        "detector.transformer.decoder.presence_token_head.layer3.*",
        "detector.transformer.decoder.presence_token_head.layers.2.*",
    ),
    whole(
        "detector.transformer.decoder.ref_point_head.layer1.*",
        "detector.transformer.decoder.ref_point_head.layers.0.*",
    ),
    whole(
        "detector.transformer.decoder.ref_point_head.layer2.*",
        "detector.transformer.decoder.ref_point_head.layers.1.*",
    ),
    whole(
        "detector.transformer.decoder.boxRPB_embed_x.layer1.*",
        "detector.transformer.decoder.boxRPB_embed_x.layers.0.*",
    ),
    whole(
        "detector.transformer.decoder.boxRPB_embed_x.layer2.*",
        "detector.transformer.decoder.boxRPB_embed_x.layers.1.*",
    ),
    whole(
        "detector.transformer.decoder.boxRPB_embed_y.layer1.*",
        "detector.transformer.decoder.boxRPB_embed_y.layers.0.*",
    ),
    whole(
        "detector.transformer.decoder.boxRPB_embed_y.layer2.*",
        "detector.transformer.decoder.boxRPB_embed_y.layers.1.*",
    ),
    whole(
        "detector.dot_prod_scoring.prompt_mlp.layer1.*",
        "detector.dot_prod_scoring.prompt_mlp.layers.0.*",
    ),
    whole(
        "detector.dot_prod_scoring.prompt_mlp.layer2.*",
        "detector.dot_prod_scoring.prompt_mlp.layers.1.*",
    ),
];

/// The tracker's names that differ from SAM 2's; applied after SAM 2's tables.
pub(in crate::layout) const TRACKER: &[Rule] = &[
    whole("memory_attention.layers.*", "tracker.transformer.encoder.layers.*"),
    whole("memory_attention.norm.*", "tracker.transformer.encoder.norm.*"),
    whole("memory_encoder.*", "tracker.maskmem_backbone.*"),
    whole(
        "sam_mask_decoder.transformer.layers.{}.mlp.layers.0.*",
        "tracker.sam_mask_decoder.transformer.layers.{}.mlp.lin1.*",
    ),
    whole(
        "sam_mask_decoder.transformer.layers.{}.mlp.layers.1.*",
        "tracker.sam_mask_decoder.transformer.layers.{}.mlp.lin2.*",
    ),
    whole("sam_mask_decoder.*", "tracker.sam_mask_decoder.*"),
    whole("sam_prompt_encoder.*", "tracker.sam_prompt_encoder.*"),
    whole("obj_ptr_proj.*", "tracker.obj_ptr_proj.*"),
    whole("obj_ptr_tpos_proj.*", "tracker.obj_ptr_tpos_proj.*"),
    whole("mask_downsample.*", "tracker.mask_downsample.*"),
    whole("no_mem_embed", "tracker.no_mem_embed"),
    whole("no_mem_pos_enc", "tracker.no_mem_pos_enc"),
    whole("maskmem_tpos_enc", "tracker.maskmem_tpos_enc"),
    whole("no_obj_ptr", "tracker.no_obj_ptr"),
    whole("no_obj_embed_spatial", "tracker.no_obj_embed_spatial"),
];
