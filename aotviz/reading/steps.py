"""What a recording can be asked about a training step: several of its compilations together."""

from __future__ import annotations

from aotviz.recording import step_memory
from aotviz.recording.compilation import Compilation
from aotviz.recording.step_memory import StepMemory


class HasSteps:
    """A recording, as far as its training steps go."""

    @property
    def compilations(self) -> list[Compilation]:
        """All compilations, oldest first."""
        raise NotImplementedError

    def step_memory(self, *ids: str) -> StepMemory:
        """Which bytes are alive at each node of a training step: forward, captured backward and optimizer step.

        The pieces are the last backward that `aotviz.compiled_autograd` captured, the forwards whose backwards are in
        it, and each function that reads gradients, such as `lambda: optimizer.step()`. Without a captured backward,
        they are the graphs of the last function that was compiled with a backward, and those that hand tensors to it,
        if these are all that have a backward. Other pieces are named by their ids, in the order in
        which they run; the parts of a captured backward need not be named.

        The result has `moments`, `peak`, `holders()` and `plot()`, as `Compilation.memory()`; the phases are "forward",
        "backward" and "step". It is exact for graphs that run operator by operator, but for what runs between the
        pieces: put the loss into the compiled function.

        Raises LookupError if there is no such compilation or no step, or if a backward of a forward runs as it is.

        >>> import torch, aotviz
        >>> net = torch.nn.Linear(4, 4)
        >>> optimizer = torch.optim.AdamW(net.parameters())
        >>> loss = aotviz.compile(lambda x: net(x).square().mean(), backend="eager")
        >>> update = aotviz.compile(lambda: optimizer.step(), backend="eager")
        >>> captured = aotviz.compiled_autograd(backend="eager")
        >>> with aotviz.record() as recording:
        ...     for _ in range(2):
        ...         with captured:
        ...             loss(torch.ones(8, 4)).backward()
        ...         update(); optimizer.zero_grad()
        >>> memory = recording.step_memory()
        >>> memory.peak.phase, sorted(set(memory.holders().kind) & {"parameter", "buffer", "gradient"})
        ('step', ['buffer', 'gradient', 'parameter'])
        """
        return step_memory.of(self.compilations, ids)
