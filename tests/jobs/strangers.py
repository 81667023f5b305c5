"""Jobs of a person who knew neither the code of `explain` nor the other jobs: those whose kinds were told wrongly.

See recompiles.py for how a job is written.
"""

from __future__ import annotations

import threading

import torch
import transformers
from torch import nn


def layers_unfrozen_in_turn(cured):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    model.requires_grad_(cured)
    step = torch.compile(model, backend="aot_eager")
    for layer in reversed(model):
        layer.requires_grad_(True)
        step(torch.ones(2, 4)).sum().backward()  # here


NORMS = {}


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Measured(Clamp):
    @staticmethod
    def backward(ctx, grad):
        NORMS["clamp"] = grad.detach().norm()  # here
        return grad


def statistics_in_a_backward(cured):
    clamp = Clamp if cured else Measured
    scaled = torch.compile(lambda x: clamp.apply(x * 2) * 3, backend="aot_eager")
    scaled(torch.ones(3, requires_grad=True)).sum().backward()


class Settings:
    kind = None


class Classifier(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.settings = nn.Linear(4, 2), Settings()
        self.settings.kind = kind

    def forward(self, x, labels):
        if self.settings.kind is None:  # here
            self.settings.kind = "one label"
        return nn.functional.cross_entropy(self.linear(x), labels)


def kind_set_by_the_first_call(cured):
    model = torch.compile(Classifier("one label" if cured else None), backend="aot_eager")
    for _ in range(3):
        model(torch.ones(2, 4), torch.tensor([0, 1])).backward()


@torch.compile(backend="aot_eager")
def rescaled(x):
    return x / (x.abs().max().item() + 1.0)  # here


def setting_of_another_thread(cured):
    if not cured:
        torch._dynamo.config.capture_scalar_outputs = True

    def worker():
        if cured:
            torch._dynamo.config.capture_scalar_outputs = True
        rescaled(torch.ones(4))

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()


def cell(h, x):
    return torch.tanh(h + x)


def time_steps_unrolled(cured):
    step = torch.compile(cell, backend="aot_eager") if cured else cell

    def recurrent(x):
        h = torch.zeros_like(x[0])
        for t in range(x.shape[0]):
            h = step(h, x[t])  # here
        return h

    recurrent(torch.ones(300, 4)) if cured else torch.compile(recurrent, backend="aot_eager")(torch.ones(300, 4))


def update(average: torch.Tensor, value: torch.Tensor) -> None:
    average.mul_(0.9).add_(value, alpha=0.1)


def operator_without_its_write(cured):
    average = torch.library.custom_op("strangers::average", update, mutates_args={"average"} if cured else ())
    average.register_fake(lambda average, value: None)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x, kept):
        y = torch.sigmoid(x)
        average(kept, y.mean(0))  # here
        return y.sum()

    step(torch.ones(4, 2), torch.zeros(2))


def experts_in_a_loop(cured):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.MixtralConfig(vocab_size=16, num_key_value_heads=1, num_local_experts=2, **sizes)
    kind = "batched_mm" if cured else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation=kind).eval()
    step = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        step(input_ids=torch.arange(6)[None], use_cache=False)  # here


def random_numbers_compared(cured):
    def noisy(x):
        return x + torch.rand_like(x)

    results = []
    for function in (noisy, torch.compile(noisy, options={"fallback_random": cured})):
        torch.manual_seed(7)
        results.append(function(torch.ones(64)))
    assert torch.equal(*results)


def roundings_compared(cured):
    def mixed(x):
        return ((x * 1.7 + x) * 0.3 - x).tanh()

    x = torch.linspace(-3, 3, 512, dtype=torch.bfloat16)
    assert torch.equal(torch.compile(mixed, options={"emulate_precision_casts": cured})(x), mixed(x))
