"""Errors that a compiled function, its backward or an export raises, and what the error's own message advises."""

from __future__ import annotations

from typing import Any

import torch
import torch._functorch.config
from torch import nn
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap

from aotviz.explain.cures import backward_cures, break_cures, export_cures, guard_cures, result_cures
from tests.cures.backwards import penalty
from tests.cures.breaks_in_classes import TakenApart
from tests.cures.exports import exported
from tests.cures.programs import Calls, Effect, compiled, errors, program, watched


@program(
    "a backward that is called twice, of a program that donated its buffers",
    backward_cures.DONATED,
    "Set `torch._functorch.config.donated_buffer = False` before the first call",
    ("locuslab/torchdeq#11", "meta-pytorch/tritonbench#40"),
    errors,
)
def a_backward_of_donated_buffers(cured: bool) -> object:
    with torch._functorch.config.patch(donated_buffer=not cured):
        weight = torch.ones(3, requires_grad=True)
        step = compiled(lambda weight: (weight.sin().exp() * weight).sum(), backend="aot_eager")
        step(weight).backward()
        loss = step(weight)
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        (loss * gradient.norm()).backward()
    return weight.grad


class Table(nn.Module):
    def __init__(self, mode: Any, copies: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        with mode:
            self.table = torch.ones(3)
        if copies:
            self.table = self.table.clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.table


def trained(mode: Any, copies: bool) -> None:
    compiled(Table(mode, copies), backend="aot_eager")(torch.ones(2, 3)).sum().backward()


@program(
    "a table that is made in inference mode, and copied",
    backward_cures.SAVED_INFERENCE,
    "`self.table = self.table.clone()`",
    (),
    errors,
)
def a_table_of_inference_mode_copied(cured: bool) -> None:
    trained(torch.inference_mode(), copies=cured)


@program(
    "a table that is made in inference mode",
    backward_cures.SAVED_INFERENCE,
    "Make `self.table` outside of `torch.inference_mode()`, for example under `torch.no_grad()`",
    (),
    errors,
)
def a_table_of_inference_mode(cured: bool) -> None:
    trained(torch.no_grad() if cured else torch.inference_mode(), copies=False)


@program(
    "a cache of another dtype than what is written into it",
    result_cures.DTYPES,
    "`keys.to(cache.dtype)`",
    (),
    errors,
)
def a_cache_of_another_dtype(cured: bool) -> object:
    cache, project = torch.zeros(4, 3), nn.Linear(3, 3)
    nn.init.ones_(project.weight)

    def step(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        keys = project(x)
        return cache.index_copy_(0, at, keys.to(cache.dtype) if cured else keys)

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compiled(step, backend="aot_eager")(torch.ones(1, 3), torch.tensor([1]))
    return None


@program(
    "a write to what a function that is differentiated captured",
    break_cures.TORCHS_HINT,
    "please rewrite the function being transformed to explicitly accept the mutated Tensor(s) as inputs",
    (),
    errors,
)
def a_write_to_what_is_captured(cured: bool) -> None:
    count = torch.zeros(3)

    def loss(x: torch.Tensor, count: torch.Tensor = count) -> torch.Tensor:
        return (x * count.add_(x.detach())).sum()

    given = (torch.zeros(3),) if cured else ()
    compiled(grad(loss), fullgraph=True)(torch.ones(3), *given)


@program(
    "an index that is out of bounds",
    break_cures.RAISES,
    "correct what its message says",
    (),
    errors,
)
def an_index_out_of_bounds(cured: bool) -> None:
    at = torch.tensor([2 if cured else 7])
    compiled(lambda x, at: x.sin()[at], backend="aot_eager")(torch.ones(3), at)


def not_compiled(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    return Effect(int(not any(len(one.stages) for one in recording)), "calls without a program", recording, result)


@program(
    "a compiled function inside a transform",
    break_cures.TRANSFORM,
    "`torch.compile(torch.func.grad(f))`",
    ("pytorch/pytorch#128711",),
    not_compiled,
)
def a_transform_of_a_compiled_function(cured: bool) -> object:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum()

    made = torch.compile(grad(loss) if cured else loss, backend="aot_eager")  # "eager" alone is compiled there
    return (made if cured else grad(made))(torch.ones(4, 3))


@program(
    "a branch of torch.cond that returns its input",
    break_cures.ALIASED_BRANCH,
    "`x.clone()`",
    ("pytorch/pytorch#153832", "huggingface/transformers#39488"),
    errors,
)
def a_branch_that_returns_its_input(cured: bool) -> object:
    def clipped(x: torch.Tensor) -> Any:
        y = x * 2
        return torch.cond(y.norm() > 10, lambda y: y / 2, lambda y: y.clone() if cured else y, (y,))

    with torch.no_grad():  # else Dynamo refuses it
        return torch.compile(clipped, backend="aot_eager")(torch.ones(3))


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient


@program(
    "a custom autograd.Function under vmap",
    break_cures.FUNCTION_UNDER_VMAP,
    "`x + (f(x) - x).detach()`",
    ("pytorch/pytorch#129845",),
    errors,
)
def a_function_under_vmap(cured: bool) -> object:
    def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = x * weight
        rounded: torch.Tensor = y + (y.round() - y).detach() if cured else Rounded.apply(y)
        return (rounded * 2).sum()

    return compiled(vmap(grad(loss), (None, 0)), fullgraph=True)(torch.ones(3), torch.ones(4, 3))


@program(
    "BatchNorm under vmap",
    break_cures.BATCH_NORM_IN_VMAP,
    "`torch.func.replace_all_batch_norm_modules_(model)`",
    ("pytorch/functorch#384",),
    errors,
)
def batch_norm_under_vmap(cured: bool) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
    if cured:
        replace_all_batch_norm_modules_(model)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def loss(parameters: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = functional_call(model, (parameters, buffers), (x[None],))
        return made.sum()

    compiled(vmap(grad(loss), (None, None, 0)), fullgraph=True)(parameters, buffers, torch.ones(4, 1, 6, 6))


def scale(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(-1, keepdim=True)


def operator(name: str, real: Any, fake: Any) -> Any:
    made = torch.library.custom_op(f"cures::{name}", real, mutates_args=())
    made.register_fake(fake)
    return made


UNLIKE = operator("unlike_its_fake", scale, lambda x: x.new_empty(x.shape[:-1]))
LIKE = operator("like_its_fake", scale, lambda x: x.new_empty((*x.shape[:-1], 1)))


@program(
    "an operator that returns something else than its fake kernel",
    export_cures.UNLIKE_FAKE,
    "return a tensor with the shape, strides and dtype that `cures::unlike_its_fake` itself returns",
    ("pytorch/pytorch#149732", "NVIDIA/cuEquivariance#223"),
    errors,
)
def an_operator_unlike_its_fake(cured: bool) -> None:
    scales = LIKE if cured else UNLIKE
    torch.compile(lambda x: scales(x))(torch.ones(4, 3))


def lay_out(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).contiguous()


KEEPS = operator("keeps_strides", lay_out, lambda x: torch.empty_like(x))
LAYS_OUT = operator("lays_out", lay_out, lambda x: x.new_empty(x.shape))


@program(
    "an operator with other strides than its fake kernel",
    export_cures.UNLIKE_FAKE,
    "`x.new_empty(x.shape)` those of a contiguous tensor",
    (),
    errors,
)
def an_operator_with_other_strides(cured: bool) -> None:
    lays_out = LAYS_OUT if cured else KEEPS
    torch.compile(lambda x: lays_out(x.t()) * 2)(torch.ones(4, 3))


RAISES = operator("fake_that_raises", lay_out, lambda x: x.new_empty(x.shape[0], x.shape[5]))


@program(
    "a fake kernel that raises",
    export_cures.FAKE_RAISES,
    "Correct this line. It is in the function that `register_fake` registers",
    (),
    errors,
)
def a_fake_kernel_that_raises(cured: bool) -> object:
    lays_out = LAYS_OUT if cured else RAISES
    return compiled(lambda x: lays_out(x) * 2)(torch.ones(4, 3))


@program(
    "an export that takes the entries of a tensor, as many as data decides",
    export_cures.LENGTH,
    "`torch._check(bincount.shape[0] == n)`",
    (),
    errors,
)
def entries_of_a_tensor(cured: bool) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x.argmax(-1), minlength=4)
        if cured:
            torch._check(counts.shape[0] == 4)
        first, *_, last = counts.tolist()
        return x * first + last

    exported(forward, torch.randn(24, 4))


def repeats(self: Any, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for _ in range(n.item()):  # type: ignore[arg-type]
        x = x * 2
    return x


def repeats_three_times(self: Any, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    steps = n.item()
    torch._check(steps == 3)
    for _ in range(steps):  # type: ignore[arg-type]
        x = x * 2
    return x


@program(
    "an export that loops as often as a tensor says",
    export_cures.UNKNOWN_NUMBER,
    "If it is always the same, say so before this line",
    (),
    errors,
)
def a_loop_of_unknown_length(cured: bool) -> None:
    exported(repeats_three_times if cured else repeats, torch.ones(3), torch.tensor(3))


class Unprinted(TakenApart):
    __repr__ = torch.Tensor.__repr__

    @staticmethod
    def __tensor_unflatten__(held: dict[str, torch.Tensor], kept: None, size: Any, stride: Any) -> Unprinted:
        return Unprinted(held["held"])


@program(
    "a tensor subclass that torch's trace cannot print",
    break_cures.TRACE_PRINTS,
    "give the tensor's class a `__repr__` that reads no values",
    (),
    errors,
)
def a_subclass_that_cannot_be_printed(cured: bool) -> None:
    weight = (TakenApart if cured else Unprinted)(torch.ones(3))
    compiled(lambda x, weight: x * weight + 1, backend="aot_eager", fullgraph=True)(torch.ones(3), weight)


@program(
    "a gradient penalty of a compiled critic that is trained",
    guard_cures.DIFFERENTIATED,
    "make this call without `torch.compile`",
    (),
    errors,
    first=False,
)
def a_gradient_penalty_of_a_critic(cured: bool) -> None:
    critic = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    run = compiled(critic, backend="aot_eager")
    run(torch.ones(3)).sum().backward()
    penalty(critic if cured else run)


def keep_input(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def doubled(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 2


def doubled_wrongly(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return gradient * ctx.saved_tensors[0].reshape(7)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


HAS_FORMULA, HAS_WRONG, HAS_NONE = (
    operator(name, twice, torch.empty_like) for name in ("with_formula", "with_wrong_formula", "without_formula")
)
HAS_FORMULA.register_autograd(doubled, setup_context=keep_input)
HAS_WRONG.register_autograd(doubled_wrongly, setup_context=keep_input)


@program(
    "an operator's backward formula that raises",
    backward_cures.FORMULA_RAISES,
    "Correct this line. It is in the formula",
    (),
    errors,
)
def a_formula_that_raises(cured: bool) -> None:
    doubles = HAS_FORMULA if cured else HAS_WRONG
    compiled(lambda x: doubles(x).sum(), backend="aot_eager")(torch.ones(3, requires_grad=True)).backward()


@program(
    "an operator without a backward formula",
    backward_cures.NO_FORMULA,
    '`torch.library.register_autograd("cures::without_formula", backward, setup_context=setup_context)`',
    (),
    errors,
)
def an_operator_without_a_formula(cured: bool) -> None:
    doubles = HAS_FORMULA if cured else HAS_NONE
    compiled(lambda x: doubles(x).sum())(torch.ones(3, requires_grad=True)).backward()
