"""The sizes of the model that tensor shapes do not tell, and the record of them in a checkpoint."""

import dataclasses
import json

METADATA_KEY = "cutout.config"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Everything needed to build the model; field meanings are listed in README.md."""

    architecture: str = "sam2.1"
    image_size: int = 640
    embed_dim: int = 48
    num_heads: int = 1
    stages: tuple = (2, 3, 8, 1)
    window_spec: tuple = (8, 8, 8, 8)
    global_attention_blocks: tuple = (6, 8, 10, 12)
    q_pool_stages: int = 3
    position_background_size: tuple = (7, 7)
    model_width: int = 128
    top_down_levels: tuple = (2, 3)
    dropped_levels: int = 1
    decoder_depth: int = 2
    decoder_heads: int = 8
    decoder_mlp_width: int = 512
    attention_downsample_rate: int = 2
    mask_prompt_channels: int = 16
    iou_head_width: int = 128
    memory_width: int = 64
    memory_attention_layers: int = 2
    memory_attention_heads: int = 1
    memory_attention_mlp_width: int = 512
    memory_fuser_layers: int = 2
    memory_frames: int = 5
    object_pointers: int = 8
    rope_theta: float = 10000.0
    sigmoid_scale: float = 20.0
    sigmoid_bias: float = -10.0
    pixel_mean: tuple = (0.485, 0.456, 0.406)
    pixel_std: tuple = (0.229, 0.224, 0.225)

    @property
    def stage_widths(self):
        return tuple(self.embed_dim * 2**stage for stage in range(len(self.stages)))

    @property
    def stage_ends(self):
        return tuple(sum(self.stages[: stage + 1]) - 1 for stage in range(len(self.stages)))

    def to_json(self):
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    def loader_metadata(self):
        """What the Rust loader needs and no tensor's shape tells."""
        def text(value):
            return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

        entries = {
            "image_size": self.image_size,
            "heads": self.num_heads,
            "windows": self.window_spec,
            "global_blocks": self.global_attention_blocks,
            "decoder_heads": self.decoder_heads,
            "memory_heads": self.memory_attention_heads,
            "pointer_frames": self.object_pointers,
        }
        return {f"sam2.{key}": text(value) for key, value in entries.items()}

    @staticmethod
    def from_json(text):
        fields = json.loads(text)
        return Configuration(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        )


TINY = Configuration(
    image_size=128,
    embed_dim=16,
    stages=(1, 1, 2, 1),
    global_attention_blocks=(3,),
    window_spec=(8, 4, 4, 4),
    model_width=32,
    decoder_mlp_width=64,
    memory_width=16,
    memory_attention_mlp_width=64,
    iou_head_width=32,
    memory_frames=3,
)
SMALL = Configuration()
