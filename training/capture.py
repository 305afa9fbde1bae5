"""Records whole training steps as CUDA graphs, so that the processor's launches cost nothing."""

import torch


class Recorded:
    """One kind of step: gradients land in place, its figures in fixed tensors."""

    def __init__(self, parameters, step, pool):
        """`step()` returns a loss and a dictionary of scalar figures; it must not wait for the device."""
        self.gradients = [parameter.grad for parameter in parameters]
        self.graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.run(step)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        figures = self.run(step)
        self.figures = {name: torch.zeros_like(value) for name, value in figures.items()}
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, pool=pool):
            for name, value in self.run(step).items():
                self.figures[name].copy_(value)

    def run(self, step):
        torch._foreach_zero_(self.gradients)
        loss, figures = step()
        loss.backward()
        return {"loss": loss.detach().float(), **figures}

    def __call__(self):
        self.graph.replay()
        return {name: value.clone() for name, value in self.figures.items()}


class Plain:
    """The same step without recording, for devices that cannot."""

    def __init__(self, parameters, step):
        self.parameters, self.step = parameters, step

    def __call__(self):
        for parameter in self.parameters:
            parameter.grad.zero_()
        loss, figures = self.step()
        loss.backward()
        return {"loss": loss.detach().float(), **figures}
