"""The only code of aotviz that Dynamo traces: it is there for that. See Note [No code of aotviz is traced]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class CallsOriginal:
    """What Dynamo traces in place of a call of something compiled: whatever compiles the caller compiles this too."""

    _original: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)


def does_nothing(self: Any, gradient: Any) -> None:
    """What Dynamo traces in place of a hook of ours on a result: torch's compiled autograd runs the user's itself."""


class CallsHook:
    """What Dynamo traces in place of a user's hook that waits for its gradient: there it has come."""

    hook: Callable[[torch.Tensor], Any]

    def __call__(self, gradient: torch.Tensor | None) -> Any:
        return None if gradient is None else self.hook(gradient)


class CallsForward:
    """A compiled module, whose `forward` can be assigned."""

    _forward: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    @property
    def forward(self) -> Callable[..., Any]:
        return self._forward

    @forward.setter
    def forward(self, other: Callable[..., Any]) -> None:
        type(self)._forward = staticmethod(other)


class TrainingStep(torch.nn.Module):
    """The demo's program: loss and logits of a causal language model on `tokens: i64[batch, length]`, each predicting
    the next."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.model(input_ids=tokens, attention_mask=mask, labels=tokens)
        return result.loss, result.logits
