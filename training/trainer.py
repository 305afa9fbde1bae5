"""The steps of training: prompted images and clips followed by memory."""

import contextlib
import random as python_random

import torch
import torch.nn.functional as F

import losses
import prompts
from capture import Plain, PlainStep, Recorded, RecordedStep
from clips import move, times
from configuration import SMALL, TINY
from depth_scenes import Painter
from effects import camera, expose
from model import Model, Prompt
from randomness import Random, constant
from scenes import Library, Scene, compose, draw_cast, draw_pose, paint_layer
from tracking import answer, choose, start_from_mask

LAYERS = 11  # the background and up to ten objects
# Steps on images: first prompt, rounds, weight. Several clicks are given at once; "near" adds a negative one.
IMAGE_STEPS = {
    "click": ("click", 2, 27), "clicks": ("click", 4, 8), "box": ("box", 1, 26), "box-click": ("box", 2, 6),
    "two": ("two", 2, 7), "three": ("three", 1, 15), "five": ("five", 1, 5), "near": ("near", 2, 6),
}
# Steps on clips: first prompt, frames said to lie between the first frame and the rest, weight.
CLIP_STEPS = {
    "clip-click": ("click", 0, 28), "clip-late": ("click", 14, 26), "clip-mask": ("mask", 10, 22),
    "clip-box": ("box", 6, 24),
}
CLICKS = {"two": 2, "three": 3, "five": 5, "near": 2}
# One click that lies on a part means the whole more often than several clicks inside it do: of the usual share of parts so much is left.
ONE_CLICK_PARTS = 0.4


def joined(flat, deep):
    """One batch of flat scenes, first, and scenes with depth; either may be missing."""
    if flat is None or deep is None:
        return flat or deep
    drawn = F.pad(flat.drawn, (0, deep.drawn.shape[1] - flat.drawn.shape[1]))
    pairs = [(flat.images, deep.images), (flat.layers, deep.layers), (flat.parts, deep.parts), (drawn, deep.drawn)]
    return Scene(*(torch.cat(pair).contiguous() for pair in pairs))


def varied(random, scene, frames, flat):
    """Scenes mirrored and clips backwards at random, in other tones; channels change places.

    The first `flat` clips are turned too; of scenes with depth, which have an up, only a few are.
    """
    clips = len(scene.images) // frames
    free = (torch.arange(clips, device=random.device) < flat) | random.chance(0.1, clips)
    across, down, turned, back = (random.chance(0.5, clips) for _ in range(4))
    across, down, turned, back = (
        value.repeat_interleave(frames) for value in (across, down & free, turned & free, back)
    )
    gamma = random.log_uniform(clips, 1, 1, 1, low=0.7, high=1.4).repeat_interleave(frames, 0)

    def reverse(value):
        shape = (-1, *[1] * (value.dim() - 1))
        backwards = value.unflatten(0, (clips, frames)).flip(1).flatten(0, 1)
        return torch.where(back.view(shape), backwards, value) if frames > 1 else value

    def turn(value):
        shape = (-1, *[1] * (value.dim() - 1))
        value = torch.where(across.view(shape), value.flip(-1), value)
        value = torch.where(down.view(shape), value.flip(-2), value)
        return reverse(torch.where(turned.view(shape), value.transpose(-1, -2), value))

    swapped = (free | random.chance(0.3, clips)).repeat_interleave(frames).view(-1, 1, 1, 1)
    images = torch.where(swapped, scene.images.index_select(1, random.uniform(3).argsort()), scene.images)
    images = turn(images).clamp(1e-4, 1) ** gamma
    return Scene(images.contiguous(), turn(scene.layers), turn(scene.parts), reverse(scene.drawn))


def means(name, each, flat):
    """Means of `each` [scenes, ...] over the first `flat` scenes, called `name`, and over those with depth."""
    parts = {name: each[:flat], f"{name}-depth": each[flat:]}
    return {key: value.mean() for key, value in parts.items() if len(value)}


class Trainer:
    """The model, its optimizer and its running average."""

    def __init__(self, options):
        self.options = options
        self.device = torch.device(options.device)
        torch.manual_seed(options.seed)
        self.configuration = TINY if options.tiny else SMALL
        self.model = Model(self.configuration).to(self.device)
        self.parameters = list(self.model.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        groups = [
            {"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": 0.05},
            {"params": [p for p in self.parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=options.rate, betas=(0.9, 0.98), fused=self.device.type == "cuda"
        )
        self.average = [p.detach().clone() for p in self.parameters]
        self.step = self.warm = 0
        self.random, self.kept = Random(None, self.device), {}
        self.choice = python_random.Random(options.seed)
        self.focal, self.spread, self.objects = (torch.zeros((), device=self.device) for _ in range(3))
        self.enlargement = losses.enlargement(options.side // 4, options.side, self.device)
        self.paint, self.expose, self.combined = paint_layer, expose, losses.combined
        self.library = Library.draw(options.seed + 2, self.device, tuple(options.bank), "training")
        self.flat = {1: min(options.flat, options.batch), options.frames: min(options.flat_clips, options.clips)}
        counts = {1: options.batch, options.frames: options.clips}
        self.part_share = {frames: self.part_shares(frames, count) for frames, count in counts.items()}
        self.painter = None
        if options.flat < options.batch or options.flat_clips < options.clips:
            *textures, pictures = options.textures
            self.painter = Painter(self.library, self.device, options.seed + 3, textures, pictures)
        if options.compile:
            self.compile(options.compile)
            if not options.compile_only:
                self.compile_images(options.compile)

    def compile(self, backend):
        """Fuses decoding, memory and losses at fixed shapes; only the numbers of points and of memories may vary."""
        torch._dynamo.config.cache_size_limit = 64
        torch._dynamo.config.automatic_dynamic_shapes = False
        fuse = lambda function: torch.compile(function, backend=backend)
        vary = lambda *values: [torch._dynamo.maybe_mark_dynamic(value, 1) for value in values]
        model = self.model
        model.spatial_memory, self.combined = fuse(model.spatial_memory), fuse(losses.combined)
        shrink = model.sam_prompt_encoder.mask_downscaling
        plainly, fused, size = shrink.forward, fuse(shrink.forward), self.options.batch * self.options.targets
        shrink.forward = lambda logits: (fused if len(logits) == size else plainly)(logits)
        decode, attend = fuse(model.sam_mask_decoder.forward), fuse(model.memory_attention.forward)

        def decode_points(image, fine, prompt, position):
            vary(prompt)
            return decode(image, fine, prompt, position)

        def attend_memories(image, memory, pointers):
            vary(*memory, *pointers)
            return attend(image, memory, pointers)

        model.sam_mask_decoder.forward, model.memory_attention.forward = decode_points, attend_memories

    def compile_images(self, backend):
        """Fuses drawing and the image encoder."""
        fuse = lambda function: torch.compile(function, backend=backend)
        self.model.image_encoder.forward = fuse(self.model.image_encoder.forward)
        self.paint, self.expose = fuse(paint_layer), fuse(expose)

    def part_share_of(self, kind, frames):
        """How many of a scene's targets are parts, [count, 1], when the first prompt is of a kind."""
        return self.part_share[frames] * (ONE_CLICK_PARTS if kind == "click" else 1)

    def part_shares(self, frames, count):
        """How many of a scene's targets are parts, [count, 1]: flat scenes first, then those with depth."""
        flat, deep = self.options.part_share
        share = torch.full((count, 1), deep, device=self.device)
        share[: self.flat[frames]] = flat
        return share

    def autocast(self):
        if self.device.type == "cuda":
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def load(self, path):
        """Goes on from a full state, or from weights alone."""
        if path.endswith(".safetensors"):
            from export import load_checkpoint

            self.model.load_state_dict(load_checkpoint(path)[0])
            self.average = [p.detach().clone() for p in self.parameters]
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = [value.to(self.device) for value in state["average"]]
        self.step = state["step"]
        # Another stretch draws other scenes.
        torch.manual_seed(self.options.seed + 1000 + self.step)

    def state(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
        }

    def averaged_state(self):
        state = dict(self.model.state_dict())
        for (name, _), value in zip(self.model.named_parameters(), self.average):
            state[name] = value
        return state

    def steps(self):
        """Drawing and every kind of step by name, recorded where the device can."""
        drawing = {"draw-image": self.draw_images, "draw-clip": self.draw_clips}
        kinds = {
            name: lambda kind=kind, rounds=rounds: self.image_loss(kind, rounds)
            for name, (kind, rounds, _) in IMAGE_STEPS.items()
        }
        for name, (kind, pause, _) in CLIP_STEPS.items():
            kinds[name] = lambda kind=kind, pause=pause: self.clip_loss(kind, pause)
        if self.device.type != "cuda" or not self.options.record:
            plain = {name: Plain(draw) for name, draw in drawing.items()}
            return {**plain, **{name: PlainStep(self.parameters, step) for name, step in kinds.items()}}
        pool, recorded = torch.cuda.graph_pool_handle(), {}
        for name in (*drawing, *kinds):
            if name in drawing:
                recorded[name] = Recorded(drawing[name], pool)
            else:
                recorded[name] = RecordedStep(self.parameters, kinds[name], pool)
            print(f"recorded {name}: {1000 * recorded[name].seconds:.0f} ms", flush=True)
        return recorded

    def draw(self, count, frames=1, pause=0):
        """Flat scenes and scenes with depth, or clips in which up to `pause` frames pass unseen after the first."""
        flat = self.flat[frames]
        return joined(
            self.draw_flat(flat, frames, pause) if flat else None,
            self.draw_deep(count - flat, frames, pause) if flat < count else None,
        )

    def draw_deep(self, count, frames, pause):
        if frames == 1:
            return self.painter.images(self.random, count, self.options.side, self.expose)
        skipped = self.random.uniform(count, high=pause) * self.random.chance(0.35, count)
        pace = self.random.uniform(count, low=0.022, high=0.085) * (frames - 1) / (1 + skipped / 14)
        time = times(frames, self.device, skipped) * pace.view(-1, 1, 1)
        return self.painter.clips(self.random, count, self.options.side, time, self.expose)

    def draw_flat(self, count, frames, pause):
        cast = draw_cast(self.random, self.library, count, LAYERS, self.objects)
        # Kinds below 0.4 are patches, from there to 0.48 rims: more of them than on held-out scenes, so that
        # wholes of unlike parts are learnt.
        kind = cast.part_kind
        rim = torch.where(kind < 0.68, torch.full_like(kind, 0.44), kind)
        cast.part_kind = torch.where(kind < 0.52, 0.7 * kind, rim)
        pose = draw_pose(self.random, count, LAYERS)
        if frames > 1:
            skipped = self.random.uniform(count, high=pause) * self.random.chance(0.35, count)
            pace = self.random.uniform(count, 1, low=0.022, high=0.085) * (frames - 1) / (1 + skipped[:, None] / 14)
            cast, pose = cast.repeat(frames), move(self.random, pose, frames, pace, skipped)
        scene = compose(self.library, cast, pose, self.options.side, self.paint)
        scene.images = camera(self.random, scene.images, frames, self.expose).contiguous()
        return scene

    def keep(self, frames, scene):
        """Puts scenes where steps find them; recorded steps need them to stay in one place."""
        if frames not in self.kept:
            self.kept[frames] = Scene(*(torch.empty_like(value) for value in vars(scene).values()))
        for name, value in vars(self.kept[frames]).items():
            value.copy_(getattr(scene, name))

    @torch.no_grad()
    def draw_images(self):
        self.keep(1, self.draw(self.options.batch))

    @torch.no_grad()
    def draw_clips(self):
        self.keep(self.options.frames, self.draw(self.options.clips, self.options.frames, pause=12))

    @torch.no_grad()
    def scenes(self, frames=1):
        """The scenes drawn last, differently each time."""
        return varied(self.random, self.kept[frames], frames, self.flat[frames])

    def image_loss(self, kind, rounds):
        """One encoding, several objects, and a few rounds of prompts each."""
        options = self.options
        scene = self.scenes()
        with torch.no_grad():
            codes = prompts.choose_targets(self.random, scene, options.targets, self.part_share_of(kind, 1))
            masks = prompts.target_masks(scene, codes)
            wanted = losses.Wanted(prompts.shrink(masks), masks.flatten(0, 1))
        total, reached = 0, {}
        with self.autocast():
            features = self.model.features(scene.images).repeat(options.targets)
            coarse = self.model.without_memory(features)
            prompt = self.first_prompt(kind, wanted)
            for index in range(1, rounds + 1):
                decoded = self.model.decode(coarse, features.fine, prompt)
                loss, iou = self.loss(decoded, wanted)
                total = total + loss
                chosen = answer(decoded)
                each = iou.gather(1, chosen[:, None]).view(options.batch, -1)
                reached.update(means(f"{kind}{index}", each, self.flat[1]))
                prompt = self.corrected(prompt, decoded.mask(chosen).detach(), wanted.coarse)
        return total / rounds, reached

    def loss(self, decoded, wanted):
        weights = losses.Weights(self.focal, self.spread, self.enlargement)
        return self.combined(decoded.masks, decoded.iou, decoded.score, wanted, weights)

    def first_prompt(self, kind, wanted):
        target = wanted.coarse
        if kind in CLICKS:
            place = prompts.spread_clicks(self.random, target > 0.5, CLICKS[kind], target)
            labels = torch.ones_like(place[..., 0], dtype=torch.long)
            if kind == "near":
                beside = prompts.click_beside(self.random, target > 0.5)
                place = torch.cat([place, beside[:, None]], 1)
                labels = F.pad(labels, (0, 1))
            return Prompt(place, labels)
        if kind == "click":
            place = prompts.click(self.random, target > 0.5, weight=target)[:, None]
            return Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))
        corners = prompts.boxes(self.random, wanted.full, loose=0.2)
        return Prompt(corners, constant((2, 3), self.device, torch.long).expand(len(corners), -1))

    def corrected(self, prompt, logits, target):
        """Adds a click where the mask is wrong, and mostly the mask itself."""
        place, label = prompts.correction(self.random, logits[:, 0], target)
        return Prompt(
            torch.cat([prompt.coordinates, place[:, None]], 1),
            torch.cat([prompt.labels, label[:, None]], 1),
            logits.clamp(-32, 32),
            self.random.chance(0.85, len(target)),
        )

    def clip_loss(self, kind, pause):
        """Objects prompted on a first frame and followed by memory alone.

        `pause` frames are said to lie between the first frame and the rest, so that old prompts are known too.
        """
        frames, clips, count = self.options.frames, self.options.clips, self.options.clip_targets
        scene = self.scenes(frames)
        with torch.no_grad():
            codes = prompts.choose_tracks(self.random, scene, frames, count, self.part_share_of(kind, frames))
            masks = prompts.target_masks(scene, codes.repeat_interleave(frames, 0))
            full = masks.unflatten(0, (clips, frames))
            coarse = prompts.shrink(masks).unflatten(0, (clips, frames, count))
            wanted = [losses.Wanted(coarse[:, now].flatten(0, 1), full[:, now].flatten(0, 1)) for now in range(frames)]
        with self.autocast():
            features = self.model.features(scene.images).frames(frames)
            return self.follow((kind, pause), features, wanted)

    def follow(self, opening, features, wanted):
        """Runs the frames' `features` in order; `wanted` is each frame's, of all tracks; `opening` = (kind, pause)."""
        (kind, pause), frames = opening, len(features)
        prompted, recent, total, reached = {}, {}, 0, []
        for now in range(frames):
            current, target = features[now].repeat(self.options.clip_targets), wanted[now].coarse
            if now == 0 and kind == "mask":
                prompted[-pause] = start_from_mask(self.model, current, wanted[now].full[:, None].float())
                continue
            if now == 0:
                prompt, coarse = self.first_prompt(kind, wanted[now]), self.model.without_memory(current)
            else:
                prompt = Prompt.empty(len(target), self.device)
                coarse = self.model.conditioned(current, prompted, recent, now)
            decoded = self.model.decode(coarse, current.fine, prompt)
            loss, iou = self.loss(decoded, wanted[now])
            total = total + loss
            chosen = choose(decoded, prompt.labels.shape[1] if now == 0 else 0)
            reached.append(iou.gather(1, chosen[:, None]).view(self.options.clips, -1).mean(1))
            entry = self.remembered(current, decoded, chosen, target, binary=now == 0)
            if now == 0:
                prompted[-pause] = entry
            else:
                recent[now] = entry
        return total / len(reached), means("follow", torch.stack(reached[1 - frames :], 1), self.flat[frames])

    def remembered(self, features, decoded, chosen, target, binary):
        """The memory of a frame; a third of the objects are told truly whether they are there.

        Memories learn from later frames, but no gradient goes on through a memory's mask to the frame before.
        """
        token = decoded.tokens[torch.arange(len(chosen), device=self.device), chosen]
        truth = (target.flatten(1).amax(1, keepdim=True) > 0.5).float() * 2 - 1
        score = torch.where(self.random.chance(0.33, len(chosen), 1), truth, decoded.score)
        return self.model.remember(features, decoded.mask(chosen).detach(), token, score, binary)

    def update(self, rate):
        """One optimizer step with the gradients at hand."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        self.warm += 1
        if self.step % 10 == 0:
            decay = min(self.options.average, (1 + self.step) / (100 + self.step))
            torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - decay)
        return norm
