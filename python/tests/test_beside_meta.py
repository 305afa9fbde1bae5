"""One program, run with Meta's packages and with ours on the same small random weights: same types, shapes and numbers.

Needs PyTorch and Meta's `segment_anything` and `sam2`; skipped, and said so, where they are not installed.
"""

import inspect
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import cutout.compat.sam2.automatic_mask_generator as our_sam2_generator
import cutout.compat.sam2.sam2_image_predictor as our_sam2_image
import cutout.compat.sam2.sam2_video_predictor as our_sam2_video
import cutout.compat.segment_anything as our_sam1
from cutout.compat.sam2.build_sam import build_sam2 as our_build_sam2
from cutout.compat.sam2.build_sam import build_sam2_video_predictor as our_build_video


@pytest.fixture(scope="module")
def photograph():
    """A picture with shapes, 200 by 150."""
    rows, columns = np.mgrid[0:150, 0:200]
    picture = np.stack([columns, rows, (rows + columns) // 2], axis=2).astype(np.uint8)
    picture[(rows - 70) ** 2 + (columns - 90) ** 2 < 30**2] = (220, 60, 50)
    picture[20:60, 130:180] = (40, 200, 90)
    return picture


def randomised(model, seed):
    """The model with every weight drawn anew, so that no part of it is silent."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not value.is_floating_point():
                continue
            if value.ndim > 1:
                fan_in = value[0].numel() if value.ndim > 1 else 1
                value.normal_(0.0, 0.7 / max(fan_in, 1) ** 0.5)
            elif name.endswith("weight"):
                value.normal_(1.0, 0.1)
            else:
                value.normal_(0.0, 0.1)
    return model.eval()


@pytest.fixture(scope="module")
def sam1_file(tmp_path_factory):
    meta = pytest.importorskip("segment_anything")
    from functools import partial

    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    encoder = ImageEncoderViT(
        img_size=1024, patch_size=16, embed_dim=48, depth=2, num_heads=3, mlp_ratio=4, out_chans=256, qkv_bias=True,
        use_rel_pos=True, window_size=14, global_attn_indexes=[1], norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
    )
    prompts = PromptEncoder(
        embed_dim=256, image_embedding_size=(64, 64), input_image_size=(1024, 1024), mask_in_chans=16
    )
    transformer = TwoWayTransformer(depth=2, embedding_dim=256, mlp_dim=2048, num_heads=8)
    decoder = MaskDecoder(
        num_multimask_outputs=3, transformer=transformer, transformer_dim=256, iou_head_depth=3, iou_head_hidden_dim=256
    )
    model = randomised(
        Sam(encoder, prompts, decoder, pixel_mean=[123.675, 116.28, 103.53], pixel_std=[58.395, 57.12, 57.375]), 1
    )
    file = tmp_path_factory.mktemp("sam1") / "small.pth"
    torch.save(model.state_dict(), file)
    return meta, model, file


@pytest.fixture(scope="module")
def sam2_file(tmp_path_factory):
    pytest.importorskip("sam2")
    from sam2.build_sam import build_sam2, build_sam2_video_predictor

    # Meta's own tiny configuration: other sizes are not known to either side.
    config = "configs/sam2.1/sam2.1_hiera_t.yaml"
    model = randomised(build_sam2(config, None, device="cpu"), 2)
    # Objects that random weights take for hidden would have no logits to compare.
    with torch.no_grad():
        model.sam_mask_decoder.pred_obj_score_head.layers[-1].bias.fill_(10.0)
    file = tmp_path_factory.mktemp("sam2") / "tiny.pt"
    torch.save({"model": model.state_dict()}, file)
    video = build_sam2_video_predictor(config, str(file), device="cpu")
    return model, video, config, file



def agree(found, wanted, tolerance=2e-3):
    """Same type, same shape, same numbers to a share of their size; masks in all but a few pixels."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype == np.bool_:
        assert np.mean(found != wanted) < 1e-3
    else:
        scale = max(float(np.abs(wanted).max()), 1e-6)
        assert float(np.abs(found - wanted).max()) / scale < tolerance


def parameters(function):
    return [(p.name, p.default if not isinstance(p.default, list) else tuple(p.default), p.kind)
            for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", ["__init__", "set_image", "predict", "predict_torch", "set_torch_image", "reset_image"])
def test_signatures_of_sam1_predictor(name):
    meta = pytest.importorskip("segment_anything")
    assert parameters(getattr(our_sam1.SamPredictor, name)) == parameters(getattr(meta.SamPredictor, name))


def test_signatures_of_generators():
    meta = pytest.importorskip("segment_anything")
    assert parameters(our_sam1.SamAutomaticMaskGenerator.__init__) == parameters(meta.SamAutomaticMaskGenerator.__init__)
    pytest.importorskip("sam2")
    from sam2.automatic_mask_generator import SAM2AutomaticMaskGenerator

    ours = our_sam2_generator.SAM2AutomaticMaskGenerator
    assert parameters(ours.__init__) == parameters(SAM2AutomaticMaskGenerator.__init__)


@pytest.mark.parametrize("name", ["__init__", "set_image", "set_image_batch", "predict", "predict_batch"])
def test_signatures_of_sam2_predictor(name):
    pytest.importorskip("sam2")
    from sam2.sam2_image_predictor import SAM2ImagePredictor

    assert parameters(getattr(our_sam2_image.SAM2ImagePredictor, name)) == parameters(getattr(SAM2ImagePredictor, name))


@pytest.mark.parametrize(
    "name",
    ["init_state", "add_new_points_or_box", "add_new_mask", "propagate_in_video", "clear_all_prompts_in_frame",
     "reset_state", "remove_object"],
)
def test_signatures_of_sam2_video(name):
    pytest.importorskip("sam2")
    from sam2.sam2_video_predictor import SAM2VideoPredictor

    assert parameters(getattr(our_sam2_video.SAM2VideoPredictor, name)) == parameters(getattr(SAM2VideoPredictor, name))


def sam1_program(package, model, picture):
    """What a program written for Meta's `segment_anything` does."""
    predictor = package.SamPredictor(model)
    predictor.set_image(picture)
    points, labels = np.array([[90, 70], [20, 20]]), np.array([1, 0])
    masks, scores, low = predictor.predict(point_coords=points[:1], point_labels=labels[:1])
    yield from (masks, scores, low)
    yield from predictor.predict(
        point_coords=points, point_labels=labels, mask_input=low[np.argmax(scores)][None], multimask_output=False
    )
    yield from predictor.predict(box=np.array([55, 35, 125, 105]), multimask_output=False, return_logits=True)
    boxes = torch.tensor([[55.0, 35, 125, 105], [125, 15, 185, 65]])
    boxes = predictor.transform.apply_boxes_torch(boxes, picture.shape[:2])
    for part in predictor.predict_torch(None, None, boxes=boxes, multimask_output=False):
        assert isinstance(part, torch.Tensor)
        yield part.cpu().numpy()
    embedding = predictor.get_image_embedding()
    assert isinstance(embedding, torch.Tensor)
    yield embedding.cpu().numpy()
    scaled = torch.as_tensor(predictor.transform.apply_image(picture)).permute(2, 0, 1)[None]
    predictor.set_torch_image(scaled, picture.shape[:2])
    yield from predictor.predict(point_coords=points[:1], point_labels=labels[:1], return_logits=True)


def test_a_program_for_segment_anything(sam1_file, photograph):
    meta, model, file = sam1_file
    ours = our_sam1.sam_model_registry["vit_b"](checkpoint=str(file))
    pairs = zip(sam1_program(our_sam1, ours, photograph), sam1_program(meta, model, photograph), strict=True)
    for found, wanted in pairs:
        agree(found, wanted)


def test_the_generator_of_segment_anything(sam1_file, photograph):
    meta, model, file = sam1_file
    ours = our_sam1.sam_model_registry["vit_b"](checkpoint=str(file))
    # Random weights predict no IoU worth a threshold.
    options = dict(points_per_side=4, pred_iou_thresh=-1e9, stability_score_thresh=0.1, stability_score_offset=0.02)
    wanted = meta.SamAutomaticMaskGenerator(model, **options).generate(photograph)
    found = our_sam1.SamAutomaticMaskGenerator(ours, **options).generate(photograph)
    assert len(found) == len(wanted) > 0
    for our, their in zip(found, wanted):
        assert list(our) == list(their)
        agree(our["segmentation"], their["segmentation"])
        assert abs(our["area"] - their["area"]) <= 0.001 * photograph[..., 0].size
        np.testing.assert_allclose(our["bbox"], their["bbox"], atol=1)
        np.testing.assert_allclose(our["point_coords"], their["point_coords"])
        np.testing.assert_allclose(our["crop_box"], their["crop_box"])
        np.testing.assert_allclose(our["predicted_iou"], their["predicted_iou"], rtol=1e-3, atol=1e-3)


def sam2_program(predictor, picture):
    """What a program written for Meta's `sam2` does with a picture."""
    predictor.set_image(picture)
    points, labels = np.array([[90, 70], [20, 20]]), np.array([1, 0])
    masks, scores, low = predictor.predict(point_coords=points[:1], point_labels=labels[:1])
    yield from (masks, scores, low)
    yield from predictor.predict(
        point_coords=points, point_labels=labels, mask_input=low[np.argmax(scores)][None], multimask_output=False
    )
    boxes = np.array([[55, 35, 125, 105], [125, 15, 185, 65]])
    yield from predictor.predict(box=boxes, multimask_output=False)
    yield from predictor.predict(box=boxes[0], return_logits=True, multimask_output=False)
    predictor.set_image_batch([picture, np.ascontiguousarray(picture[:, ::-1])])
    for part in predictor.predict_batch([points[:1]] * 2, [labels[:1]] * 2):
        yield from part


def test_a_program_for_sam2_pictures(sam2_file, photograph):
    from sam2.sam2_image_predictor import SAM2ImagePredictor

    model, _, config, file = sam2_file
    ours = our_sam2_image.SAM2ImagePredictor(our_build_sam2(config, str(file), device="cpu"))
    pairs = zip(sam2_program(ours, photograph), sam2_program(SAM2ImagePredictor(model), photograph), strict=True)
    for found, wanted in pairs:
        agree(found, wanted)


def video_program(predictor, clip):
    """What a program written for Meta's `sam2` does with a clip."""
    state = predictor.init_state(str(clip))
    frame, ids, logits = predictor.add_new_points_or_box(
        state, frame_idx=0, obj_id=7, points=np.array([[40, 60]], np.float32), labels=np.array([1], np.int32)
    )
    yield frame, list(ids), logits.cpu().numpy()
    frame, ids, logits = predictor.add_new_points_or_box(
        state, 0, 7, points=np.array([[48, 66]], np.float32), labels=np.array([1], np.int32), clear_old_points=False
    )
    yield frame, list(ids), logits.cpu().numpy()
    frame, ids, logits = predictor.add_new_points_or_box(state, 1, 3, box=np.array([100, 20, 150, 90], np.float32))
    yield frame, list(ids), logits.cpu().numpy()
    for frame, ids, logits in predictor.propagate_in_video(state):
        assert isinstance(logits, torch.Tensor)
        yield frame, list(ids), logits.cpu().numpy()


def test_a_program_for_sam2_video(sam2_file, clip, tmp_path, monkeypatch):
    from PIL import Image

    # Meta's loader takes JPEG files with numbers as names.
    frames = tmp_path / "frames"
    frames.mkdir()
    for index, file in enumerate(sorted(clip.glob("*.png"))[:4]):
        Image.open(file).save(frames / f"{index}.jpg", quality=95)
    _, video, config, file = sam2_file
    ours = our_build_video(config, str(file), device="cpu")
    with monkeypatch.context() as patched:
        # Meta's predictor keeps memories in bfloat16, which its own attention takes on a GPU alone.
        patched.setattr(torch, "bfloat16", torch.float32)
        wanted = list(video_program(video, frames))
    found = list(video_program(ours, frames))
    assert [answer[:2] for answer in found] == [answer[:2] for answer in wanted]
    for our, their in zip(found, wanted):
        assert our[2].dtype == their[2].dtype and our[2].shape == their[2].shape
        present = their[2] > -1000
        assert np.array_equal(our[2] > -1000, present)
        agree(our[2][present], their[2][present], 5e-3)
