"""Graph breaks whose cause is told by the line at which they are: assertions, NumPy, a library's loop."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo

from aotviz.explain.cures import break_cures as cures
from tests.cures.programs import compiled, graph_breaks, program

LOGGER = logging.getLogger(__name__)


def checked(p: torch.Tensor) -> torch.Tensor:
    assert (p >= 0).all(), f"negative: {p.min()}"
    return p * 2


def checked_with_a_constant(p: torch.Tensor) -> torch.Tensor:
    assert (p >= 0).all(), "negative"
    return p * 2


@program(
    "an assertion with a value in its message",
    cures.ASSERTION,
    "Leave the value out of the message",
    (),
    graph_breaks,
)
def an_assertion(cured: bool) -> object:
    return compiled(checked_with_a_constant if cured else checked)(torch.ones(3))


@program(
    "a logger that is asked for its level",
    cures.LOGGER_ASKED,
    "Call `isEnabledFor` outside of the compiled function",
    (),
    graph_breaks,
)
def a_question_to_a_logger(cured: bool) -> object:
    def asks(x: torch.Tensor) -> torch.Tensor:
        return x + 5 if LOGGER.isEnabledFor(logging.CRITICAL) else x

    def told(x: torch.Tensor, critical: bool) -> torch.Tensor:
        return x + 5 if critical else x

    if cured:
        return compiled(told)(torch.ones(3), LOGGER.isEnabledFor(logging.CRITICAL))
    return compiled(asks)(torch.ones(3))


def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


def scaled_inside(x: torch.Tensor) -> torch.Tensor:
    return x * np.random.uniform(2.0, 2.0)


@program(
    "a number that NumPy draws inside",
    cures.NUMPY_RANDOM,
    "Draw it outside the compiled function and pass it",
    (),
    graph_breaks,
)
def a_number_that_numpy_draws(cured: bool) -> object:
    x = torch.ones(3)
    return compiled(scaled)(x, np.random.uniform(2.0, 2.0)) if cured else compiled(scaled_inside)(x)


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def required_inside(x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_(True)
    return energy(x).sin()


@program(
    "a tensor that is made to require grad inside",
    cures.REQUIRES_GRAD,
    "before the call of the compiled function",
    (),
    graph_breaks,
)
def requires_grad_inside(cured: bool) -> object:
    x = torch.ones(3)
    if cured:
        x.requires_grad_(True)
        return compiled(lambda x: energy(x).sin(), backend="aot_eager")(x).detach()
    return compiled(required_inside, backend="aot_eager")(x).detach()


def forces(x: torch.Tensor) -> torch.Tensor:
    return -torch.autograd.grad(energy(x), x)[0]


@program(
    "forces as the gradient of an energy",
    cures.AUTOGRAD_OPS,
    "`torch._dynamo.config.trace_autograd_ops = True`",
    (),
    graph_breaks,
)
def a_gradient_taken_inside(cured: bool) -> object:
    x = torch.ones(3, requires_grad=True)
    with torch._dynamo.config.patch(trace_autograd_ops=cured):
        return compiled(forces, backend="aot_eager")(x)


def experts() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.MixtralConfig(vocab_size=16, num_key_value_heads=1, num_local_experts=2, **sizes)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@program(
    "the experts of a model of transformers",
    cures.EXPERTS,
    '`model.set_experts_implementation("batched_mm")` before the first call',
    ("huggingface/transformers#38518",),
    graph_breaks,
)
def experts_of_a_model(cured: bool) -> object:
    model = experts()
    model.set_experts_implementation("batched_mm" if cured else "eager")
    with torch.no_grad():
        return compiled(model)(input_ids=torch.arange(6)[None], use_cache=False).logits


@program(
    "the size of a storage",
    cures.OUTSIDE,
    "or do it after the call with what the function returns",
    (),
    graph_breaks,
)
def a_storage(cured: bool) -> object:
    def measured(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = x.exp()
        return y, y.untyped_storage().nbytes()

    if cured:
        y = compiled(lambda x: x.exp())(torch.ones(3))
        return y, y.untyped_storage().nbytes()
    return compiled(measured)(torch.ones(3))


@program(
    "a branch of a library that a setting of the model makes",
    cures.LIBRARYS_BRANCH,
    "reads `self.layerdrop`",
    (),
    graph_breaks,
)
def layers_that_are_dropped(cured: bool) -> object:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 8, "encoder_ffn_dim": 8, "encoder_attention_heads": 2, "encoder_layers": 2, "vocab_size": 16}
    config = transformers.BartConfig(**sizes, dropout=0.0, encoder_layerdrop=0.0 if cured else 1e-9)
    torch.manual_seed(0)
    encoder = transformers.models.bart.modeling_bart.BartEncoder(config).train()
    return compiled(encoder)(torch.ones(1, 4, dtype=torch.int64)).last_hidden_state.detach()
