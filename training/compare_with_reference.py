"""Compares this folder's model with the original SAM 2.1 modules on the same random weights.

    python compare_with_reference.py --reference PATH_OF_A_SAM2_CHECKOUT
"""

import argparse
import sys
from functools import partial

import torch

from configuration import SMALL, TINY
from model import Model, Prompt


OPTIONS = """
directly_add_no_mem_embed no_obj_embed_spatial use_high_res_features_in_sam multimask_output_in_sam
iou_prediction_use_sigmoid use_obj_ptrs_in_encoder add_tpos_enc_to_obj_ptrs proj_tpos_enc_in_obj_ptrs
use_signed_tpos_enc_to_obj_ptrs only_obj_ptrs_in_the_past_for_eval pred_obj_scores pred_obj_scores_mlp
fixed_no_obj_ptr multimask_output_for_tracking use_multimask_token_for_obj_ptr use_mlp_for_obj_ptr_proj
use_mask_input_as_output_without_sam binarize_mask_from_pts_for_mem_enc
""".split()


def reference_encoder(c):
    from sam2.modeling.backbones.hieradet import Hiera
    from sam2.modeling.backbones.image_encoder import FpnNeck, ImageEncoder
    from sam2.modeling.position_encoding import PositionEmbeddingSine

    trunk = Hiera(
        embed_dim=c.embed_dim,
        num_heads=c.num_heads,
        stages=c.stages,
        global_att_blocks=c.global_attention_blocks,
        window_pos_embed_bkg_spatial_size=c.position_background_size,
        window_spec=c.window_spec,
        q_pool=c.q_pool_stages,
    )
    neck = FpnNeck(
        position_encoding=PositionEmbeddingSine(c.model_width),
        d_model=c.model_width,
        backbone_channel_list=list(reversed(c.stage_widths)),
        fpn_top_down_levels=list(c.top_down_levels),
        fpn_interp_model="nearest",
    )
    return ImageEncoder(trunk, neck, scalp=c.dropped_levels)


def reference_memory_attention(c):
    from sam2.modeling.memory_attention import MemoryAttention, MemoryAttentionLayer
    from sam2.modeling.sam.transformer import RoPEAttention

    side = c.image_size // 16
    attention = partial(
        RoPEAttention,
        embedding_dim=c.model_width,
        num_heads=c.memory_attention_heads,
        feat_sizes=(side, side),
        rope_theta=c.rope_theta,
    )
    layer = MemoryAttentionLayer(
        activation="relu",
        dim_feedforward=c.memory_attention_mlp_width,
        dropout=0.0,
        pos_enc_at_attn=False,
        self_attention=attention(),
        d_model=c.model_width,
        pos_enc_at_cross_attn_keys=True,
        pos_enc_at_cross_attn_queries=False,
        cross_attention=attention(rope_k_repeat=True, kv_in_dim=c.memory_width),
    )
    return MemoryAttention(c.model_width, True, layer, c.memory_attention_layers)


def reference_memory_encoder(c):
    from sam2.modeling.memory_encoder import CXBlock, Fuser, MaskDownSampler, MemoryEncoder
    from sam2.modeling.position_encoding import PositionEmbeddingSine

    return MemoryEncoder(
        out_dim=c.memory_width,
        in_dim=c.model_width,
        position_encoding=PositionEmbeddingSine(c.memory_width),
        mask_downsampler=MaskDownSampler(c.model_width, kernel_size=3, stride=2, padding=1),
        fuser=Fuser(CXBlock(c.model_width), c.memory_fuser_layers),
    )


def build_reference(c):
    from sam2.modeling import sam2_base
    from sam2.modeling.sam.mask_decoder import MaskDecoder
    from sam2.modeling.sam.transformer import TwoWayTransformer

    # The original fixes these two widths in code.
    sam2_base.TwoWayTransformer = lambda **fields: TwoWayTransformer(
        **{**fields, "mlp_dim": c.decoder_mlp_width}
    )
    sam2_base.MaskDecoder = lambda **fields: MaskDecoder(
        **{**fields, "iou_head_hidden_dim": c.iou_head_width}
    )
    return sam2_base.SAM2Base(
        reference_encoder(c),
        reference_memory_attention(c),
        reference_memory_encoder(c),
        num_maskmem=c.memory_frames,
        max_obj_ptrs_in_encoder=c.object_pointers,
        image_size=c.image_size,
        sigmoid_scale_for_mem_enc=c.sigmoid_scale,
        sigmoid_bias_for_mem_enc=c.sigmoid_bias,
        multimask_min_pt_num=0,
        multimask_max_pt_num=1,
        **{name: True for name in OPTIONS},
    )


def reference_clip(reference, frames, point, label):
    """One click on frame 0, then propagation, with the original `track_step`."""
    outputs = {"cond_frame_outputs": {}, "non_cond_frame_outputs": {}}
    logits, scores = [], []
    for index in range(len(frames)):
        _, features, positions, sizes = reference._prepare_backbone_features(
            reference.forward_image(frames[index : index + 1])
        )
        prompt = {"point_coords": point, "point_labels": label} if index == 0 else None
        out = reference.track_step(
            frame_idx=index,
            is_init_cond_frame=index == 0,
            current_vision_feats=features,
            current_vision_pos_embeds=positions,
            feat_sizes=sizes,
            point_inputs=prompt,
            mask_inputs=None,
            output_dict=outputs,
            num_frames=30,
        )
        kind = "cond_frame_outputs" if index == 0 else "non_cond_frame_outputs"
        outputs[kind][index] = out
        logits.append(out["pred_masks"])
        scores.append(out["object_score_logits"])
    return torch.cat(logits), torch.cat(scores)


def reference_mask_start(reference, frame, mask):
    _, features, positions, sizes = reference._prepare_backbone_features(reference.forward_image(frame))
    out = reference.track_step(
        0, True, features, positions, sizes, None, mask,
        {"cond_frame_outputs": {}, "non_cond_frame_outputs": {}}, 30,
    )
    return out["maskmem_features"], out["obj_ptr"]


def own_mask_start(model, frame, mask):
    from tracking import start_from_mask

    return start_from_mask(model, model.features(frame), mask)


def compare(configuration, seed):
    from tracking import track_clip

    torch.manual_seed(seed)
    reference, model = build_reference(configuration).eval(), Model(configuration).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        # An object that is always present, so that masks and not constants are compared.
        reference.sam_mask_decoder.pred_obj_score_head.layers[2].bias.add_(5.0 * (seed % 2))
    missing = model.load_state_dict(reference.state_dict(), strict=True)
    print("parameters", sum(p.numel() for p in model.parameters()), missing)
    side = configuration.image_size
    frames = torch.rand(11, 3, side, side)
    normalised = (frames - model.pixel_mean) / model.pixel_std
    point, label = torch.tensor([[[side * 0.4, side * 0.6]]]), torch.ones(1, 1, dtype=torch.int32)
    with torch.no_grad():
        expected, expected_scores = reference_clip(reference, normalised, point, label)
        found, found_scores = track_clip(model, frames, Prompt(point, label))
        report("clip logits", found, expected)
        report("clip scores", found_scores, expected_scores)
        mask = (torch.rand(1, 1, side, side) > 0.5).float()
        memory, pointer = reference_mask_start(reference, normalised[:1], mask)
        entry = own_mask_start(model, frames[:1], mask)
        report("memory of a mask", entry.spatial, memory)
        report("pointer of a mask", entry.pointer, pointer)


def report(name, found, expected):
    error = ((found - expected).norm() / expected.norm()).item()
    print(f"{name}: relative error {error:.2e} over {tuple(expected.shape)}")
    assert error < 2e-5, name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.reference)
    for configuration in (TINY, SMALL):
        for seed in range(2):
            compare(configuration, seed)


if __name__ == "__main__":
    main()
