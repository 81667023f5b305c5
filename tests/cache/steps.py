"""Training steps in a process of their own: `python -m tests.cache.steps FOLDER BACKEND NAME...`.

Prints a line of JSON for each: results and gradients, and eager's; what the cache answered; the stages that ran.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._library.effects import EffectType
from torch.testing._internal.two_tensor import TwoTensor

import aotviz


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def loss_and_logits(x: Any, w: Any) -> Any:
    logits = torch.nn.functional.gelu(x @ w)
    return logits.square().sum(), logits


def loss_alone_is_differentiated(f: Callable[..., Any]) -> list[Any]:
    """As with a model of Hugging Face: no gradient comes for the logits."""
    x, w = leaves((4, 4), (4, 4))
    loss, _ = f(x, w)
    loss.backward()
    return [loss, x.grad, w.grad]


def each_result_by_itself(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    loss, logits = f(x, w)
    loss.backward(retain_graph=True)
    logits.sum().backward()
    return [loss, x.grad, w.grad]


def twice_through_one_graph(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    loss, _ = f(x, w)
    loss.backward(retain_graph=True)
    loss.backward()
    return [x.grad, w.grad]


def second_derivative(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    (gradient,) = torch.autograd.grad(f(x, w)[0], x, create_graph=True)
    gradient.square().sum().backward()
    return [gradient, x.grad, w.grad]


def hook_on_a_result(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    loss, logits = f(x, w)
    logits.register_hook(lambda gradient: gradient * 3)
    loss.backward()
    return [loss, x.grad, w.grad]


def two_batch_sizes(f: Callable[..., Any]) -> list[Any]:
    found = []
    for size in (4, 6, 5):
        x, w = leaves((size, 4), (4, 4))
        loss, _ = f(x, w)
        loss.backward()
        found += [loss, x.grad, w.grad]
    return found


def no_gradient(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    with torch.no_grad():
        return list(f(x, w))


def writes(x: Any, w: Any) -> Any:
    x.mul_(2)
    return (x @ w).sum(), x.t()


def written_inputs(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    x = x.detach()
    loss, view = f(x, w)
    loss.backward()
    view.add_(1)
    return [loss, x, w.grad, torch.tensor(x._version)]


def custom_function(x: Any, w: Any) -> Any:
    y = Scaled.apply(x @ w)
    return y.sum(), y


def dropout(x: Any, w: Any) -> Any:
    y = torch.nn.functional.dropout(x @ w, 0.5)
    return (y * 0).sum(), y * 0


def condition(x: Any, w: Any) -> Any:
    y = torch.cond(x.sum() > 0, lambda a, b: (a @ b).sin(), lambda a, b: (a @ b).cos(), (x, w))
    return y.sum(), y


def checkpointed(x: Any, w: Any) -> Any:
    y = torch.utils.checkpoint.checkpoint(lambda a, b: (a @ b).sin().exp(), x, w, use_reentrant=False)
    return y.sum(), y


def under_autocast(x: Any, w: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y.float().sum(), y.float()


@torch.compiler.nested_compile_region
def region(x: Any, w: Any) -> Any:
    return (x @ w).sin()


def regions(x: Any, w: Any) -> Any:
    y = region(region(x, w), w)
    return y.sum(), y


@torch.library.custom_op("tests_steps::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    return x * 2


noted.register_fake(torch.empty_like)
noted.register_effect(EffectType.ORDERED)


def effects(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    with torch.no_grad():
        return list(f(x, w))


def with_effects(x: Any, w: Any) -> Any:
    y = noted(noted(x) @ w)
    return y.sum(), y


def saved_hooks(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clone(), lambda kept: kept):
        loss, _ = f(x, w)
    loss.backward()
    return [loss, x.grad, w.grad]


def subclass(f: Callable[..., Any]) -> list[Any]:
    x, w = leaves((4, 4), (4, 4))
    pair = TwoTensor(x.detach().clone(), x.detach() * 2).requires_grad_()
    loss, _ = f(pair, w)
    loss.sum().backward()
    assert isinstance(pair.grad, TwoTensor)
    assert isinstance(w.grad, TwoTensor)
    return [loss.a, loss.b, pair.grad.a, pair.grad.b, w.grad.a, w.grad.b]


def sizes_from_data(f: Callable[..., Any]) -> list[Any]:
    """Two calls of one program, in which the data of `x` gives a tensor two sizes."""
    found = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        for sign in (1, -1):
            x, w = leaves((4, 4), (4, 4))
            x = (x.detach() * sign).requires_grad_()
            loss, chosen = f(x, w)
            loss.backward(retain_graph=True)
            chosen.sum().backward()
            found += [loss, chosen, x.grad, w.grad]
    return found


def picked(x: Any, w: Any) -> Any:
    y = (x * w)[x > 0]
    return y.sin().sum(), y


def counted(x: Any, w: Any) -> Any:
    n = (x > 0).sum().item()
    torch._check(n >= 2)
    torch._check(n <= 14)
    y = (x @ w).sin().reshape(16)[:n]
    return (y * x.detach().amax().item()).sum(), y.narrow(0, 0, n - 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.fc(x)).relu().sum()


def module(compiled: Callable[..., Any]) -> list[Any]:
    net = Net()
    run = compiled(net)
    (x,) = leaves((5, 4))
    loss = run(x)
    loss.backward()
    assert net.fc.weight.grad is not None
    return [loss, x.grad, net.fc.weight.grad, net.norm.running_mean]


STEPS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any]]] = {
    **{
        step.__name__: (loss_and_logits, step)
        for step in (
            loss_alone_is_differentiated,
            each_result_by_itself,
            twice_through_one_graph,
            second_derivative,
            hook_on_a_result,
            two_batch_sizes,
            no_gradient,
        )
    },
    "written_inputs": (writes, written_inputs),
    "effects": (with_effects, effects),
    "picked": (picked, sizes_from_data),
    "counted": (counted, sizes_from_data),
    "saved_hooks": (loss_and_logits, saved_hooks),
    "subclass": (loss_and_logits, subclass),
    **{
        f.__name__: (f, loss_alone_is_differentiated)
        for f in (custom_function, dropout, condition, checkpointed, under_autocast, regions)
    },
    "module": (None, module),
}


def listed(values: list[Any]) -> list[Any]:
    return [None if one is None else one.detach().double().reshape(-1).tolist() for one in values]


def main(folder: str, backend: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names or STEPS:
        f, step = STEPS[name]
        torch._dynamo.reset()
        stages: list[str] = []
        with aotviz.record() as recording:

            def compiled(fn: Any, stages: list[str] = stages) -> Any:
                def on_stage(stage: str, ns: int | None) -> None:
                    stages.extend([stage] if ns is not None else [])

                return aotviz.compile(fn, backend=backend, cache=folder, on_stage=on_stage)

            found = step(compiled if f is None else compiled(f))
        lookups = recording.cache_lookups
        told = {
            "name": name,
            "found": listed(found),
            "eager": listed(step(f or (lambda fn: fn))),
            "outcomes": list(lookups[lookups["cache"] == "aotviz"]["outcome"]),
            "reasons": [str(one) for one in lookups["reason"]],
            "wrappers": [one.wrapper.source if one.wrapper else "" for one in recording.compilations],
            "stages": stages,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
