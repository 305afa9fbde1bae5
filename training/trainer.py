"""The steps of training: prompted images and clips followed by memory."""

import contextlib
import random as python_random

import torch

import losses
import prompts
from capture import Plain, Recorded
from clips import move
from configuration import SMALL, TINY
from effects import camera
from model import Model, Prompt
from randomness import Random, constant
from scenes import Library, Scene, compose, draw_cast, draw_pose, paint_layer
from tracking import choose, start_from_mask

LAYERS = 11  # the background and up to ten objects


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
        self.random = Random(None, self.device)
        self.choice = python_random.Random(options.seed)
        self.focal, self.spread, self.objects = (torch.zeros((), device=self.device) for _ in range(3))
        self.paint, self.each_mask = paint_layer, losses.mask_losses
        self.library = Library.draw(options.seed + 2, self.device, tuple(options.bank), "training")
        if options.compile:
            self.compile(options.compile)

    def compile(self, backend):
        torch._dynamo.config.cache_size_limit = 64
        encoder, decoder = self.model.image_encoder, self.model.sam_mask_decoder
        encoder.forward = torch.compile(encoder.forward, dynamic=False, backend=backend)
        self.paint = torch.compile(paint_layer, dynamic=False, backend=backend)
        self.each_mask = torch.compile(losses.mask_losses, dynamic=False, backend=backend)
        plain, fused = decoder.forward, torch.compile(decoder.forward, backend=backend)
        size = self.options.batch * self.options.targets

        def forward(image, fine, prompt, position):
            if len(image) != size:
                return plain(image, fine, prompt, position)
            torch._dynamo.maybe_mark_dynamic(prompt, 1)
            return fused(image, fine, prompt, position)

        decoder.forward = forward

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
        """Every kind of step by name, recorded where the device can."""
        kinds = {
            "click": lambda: self.image_loss("click", 3),
            "box": lambda: self.image_loss("box", 3),
            "many": lambda: self.image_loss("click", 6),
            "clip-click": lambda: self.clip_loss("click", 0),
            "clip-late": lambda: self.clip_loss("click", 20),
            "clip-box": lambda: self.clip_loss("box", 8),
            "clip-mask": lambda: self.clip_loss("mask", 14),
        }
        if self.device.type != "cuda" or not self.options.record:
            return {name: Plain(self.parameters, step) for name, step in kinds.items()}
        pool = torch.cuda.graph_pool_handle()
        return {name: Recorded(self.parameters, step, pool) for name, step in kinds.items()}

    def draw(self, count, frames=1):
        with torch.no_grad():
            cast = draw_cast(self.random, self.library, count, LAYERS, self.objects)
            pose = draw_pose(self.random, count, LAYERS)
            if frames > 1:
                pace = self.random.uniform(count, 1, low=0.15, high=0.7)
                cast, pose = cast.repeat(frames), move(self.random, pose, frames, pace)
            scene = compose(self.library, cast, pose, self.options.side, self.paint)
            scene.images = camera(self.random, scene.images, frames)
        return scene

    def image_loss(self, kind, rounds):
        """One encoding, several objects, and a few rounds of prompts each."""
        options = self.options
        scene = self.draw(options.batch)
        with torch.no_grad():
            codes = prompts.choose_targets(self.random, scene, options.targets)
            masks = prompts.target_masks(scene, codes)
            target = prompts.shrink(masks)
        total, reached = 0, {}
        with self.autocast():
            features = self.model.features(scene.images).repeat(options.targets)
            coarse = self.model.without_memory(features)
            prompt = self.first_prompt(kind, masks.flatten(0, 1), target)
            for index in range(1, rounds + 1):
                decoded = self.model.decode(coarse, features.fine, prompt)
                loss, iou = self.loss(decoded, target, self.each_mask)
                total = total + loss
                chosen = choose(decoded, prompt.labels.shape[1])
                reached[f"{kind}{index}"] = iou.gather(1, chosen[:, None]).mean()
                prompt = self.corrected(prompt, decoded.mask(chosen).detach(), target)
        return total / rounds, reached

    def loss(self, decoded, target, each_mask):
        return losses.decoded_loss(decoded, target, (self.focal, self.spread), each_mask)

    def first_prompt(self, kind, masks, target):
        if kind == "click":
            place = prompts.click(self.random, target > 0.5, weight=target)[:, None]
            return Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))
        corners = prompts.boxes(self.random, masks)
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
        options = self.options
        frames, clips, count = options.frames, options.clips, options.clip_targets
        scene = self.draw(clips, frames)
        with torch.no_grad():
            first = torch.arange(clips, device=self.device) * frames
            opening = Scene(*(value[first] for value in vars(scene).values()))
            codes = prompts.choose_targets(self.random, opening, count, part_weight=0.0)
            masks = prompts.target_masks(scene, codes.repeat_interleave(frames, 0))
            targets = prompts.shrink(masks).unflatten(0, (clips, frames, count)).transpose(1, 2).flatten(0, 1)
            opening_masks = masks[first].flatten(0, 1)
        with self.autocast():
            features = self.model.features(scene.images)
            return self.follow((kind, pause), features, targets, opening_masks)

    def follow(self, opening, features, targets, opening_masks):
        """Runs the frames in order; `targets` is [tracks, frames, h, w], `opening` = (kind, pause)."""
        kind, pause = opening
        frames, count = self.options.frames, self.options.clip_targets
        start = torch.arange(self.options.clips, device=self.device) * frames
        prompted, recent, total, reached = {}, {}, 0, []
        for now in range(frames):
            current, target = features.select(start + now).repeat(count), targets[:, now]
            if now == 0 and kind == "mask":
                prompted[-pause] = start_from_mask(self.model, current, opening_masks[:, None].float())
                continue
            if now == 0:
                prompt, coarse = self.first_prompt(kind, opening_masks, target), self.model.without_memory(current)
            else:
                prompt = Prompt.empty(len(target), self.device)
                coarse = self.model.conditioned(current, prompted, recent, now)
            decoded = self.model.decode(coarse, current.fine, prompt)
            loss, iou = self.loss(decoded, target, losses.mask_losses)
            total = total + loss
            chosen = choose(decoded, prompt.labels.shape[1] if now == 0 else 0)
            reached.append(iou.gather(1, chosen[:, None]).mean())
            entry = self.remembered(current, decoded, chosen, target)
            if now == 0:
                prompted[-pause] = entry
            else:
                recent[now] = entry
        return total / len(reached), {"follow": torch.stack(reached[1 - frames :]).mean()}

    def remembered(self, features, decoded, chosen, target):
        """The memory of a frame; half the objects are told truly whether they are there."""
        token = decoded.tokens[torch.arange(len(chosen), device=self.device), chosen]
        truth = (target.flatten(1).amax(1, keepdim=True) > 0.5).float() * 2 - 1
        score = torch.where(self.random.chance(0.5, len(chosen), 1), truth, decoded.score)
        return self.model.remember(features, decoded.mask(chosen), token, score)

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
