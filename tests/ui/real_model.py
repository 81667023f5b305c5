"""A language model of transformers, small and with random weights, in a training step that a user wrote."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

import aotviz
from aotviz.reading.recording import Recording

SIZES = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 32,
    "vocab_size": 61,
    "n_positions": 16,
    "use_cache": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


class Trained(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES)).eval()  # without dropout
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        scores = self.model(tokens).logits
        guesses = scores[:, :-1].flatten(0, 1).log_softmax(-1)
        return -guesses.gather(1, tokens[:, 1:].reshape(-1, 1)).mean()


def line(text: str) -> int:
    """The number of the line that begins with a text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, one in enumerate(lines) if one.lstrip().startswith(text))


def recording() -> Recording:
    """One step, whose backward ran."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with aotviz.record() as made:
        compiled = aotviz.compile(Trained(), backend="eager")
        compiled(torch.randint(0, 61, (2, 8))).backward()
    return made
