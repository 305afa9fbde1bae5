"""Records whole training steps as CUDA graphs, so that the processor's launches cost nothing."""

import time

import torch


class Recorded:
    """A call whose results, a dictionary of scalars, land in fixed tensors."""

    def __init__(self, call, pool):
        """`call()` returns nothing or a dictionary of scalar figures; it must not wait for the device."""
        self.graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.figures = {name: torch.zeros_like(value) for name, value in (call() or {}).items()}
        torch.cuda.synchronize()
        # The graph has memory of its own; what the calls above used would lie idle beside it.
        torch.cuda.empty_cache()
        with torch.cuda.graph(self.graph, pool=pool):
            for name, value in (call() or {}).items():
                self.figures[name].copy_(value)
        self.seconds = self.duration()

    def duration(self, times=4):
        """How long a replay takes."""
        torch.cuda.synchronize()
        began = time.time()
        for _ in range(times):
            self.graph.replay()
        torch.cuda.synchronize()
        return (time.time() - began) / times

    def __call__(self):
        self.graph.replay()
        return {name: value.clone() for name, value in self.figures.items()}


class Plain:
    """The same call without recording, for devices that cannot."""

    def __init__(self, call):
        self.call, self.seconds = call, 1.0

    def __call__(self):
        return self.call() or {}


def with_gradients(parameters, step):
    """A call that leaves the gradients of `step()`, a loss and its figures, in place."""
    gradients = [parameter.grad for parameter in parameters]

    def call():
        torch._foreach_zero_(gradients)
        loss, figures = step()
        loss.backward()
        return {"loss": loss.detach().float(), **figures}

    return call


class RecordedStep(Recorded):
    def __init__(self, parameters, step, pool):
        super().__init__(with_gradients(parameters, step), pool)


class PlainStep(Plain):
    def __init__(self, parameters, step):
        super().__init__(with_gradients(parameters, step))
