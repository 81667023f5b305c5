"""Training as users write it: loops of three steps around, or within, a compiled function.

`loop_named(name, compiled)` runs a loop whose function or module went through `compiled`, and gives what is left behind
by name: losses, parameters, buffers, the optimizer's state. Without `compiled` it says what eager gives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, stack_module_state, vmap
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, parametrizations, parametrize, vector_to_parameters

Compiled = Callable[[Any], Any]
Found = dict[str, Any]
LOOPS: dict[str, Callable[[Compiled], Found]] = {}
STEPS = 3


def loop(body: Callable[[Compiled], Found]) -> Callable[[Compiled], Found]:
    LOOPS[body.__name__] = body
    return body


def loop_named(name: str, compiled: Compiled = lambda fn: fn) -> Found:
    torch.manual_seed(0)
    return LOOPS[name](compiled)


def perceptron(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *extra, nn.Linear(6, 2))


def batches(rows: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, 4, generator=generator) for _ in range(STEPS)]


def state_of(module: nn.Module, *optimizers: torch.optim.Optimizer, losses: list[torch.Tensor]) -> Found:
    """What a loop leaves behind."""
    found: Found = {f"loss {i}": loss.detach().clone() for i, loss in enumerate(losses)}
    found |= {f"parameter {n}": p.detach().clone() for n, p in module.named_parameters()}
    found |= {f"gradient of {n}": p.grad for n, p in module.named_parameters()}
    found |= {f"version of {n}": p._version for n, p in module.named_parameters()}
    found |= {f"buffer {n}": b.clone() for n, b in module.named_buffers()}
    for optimizer in optimizers:
        for index, values in optimizer.state_dict()["state"].items():
            found |= {f"{type(optimizer).__name__} {index} {n}": copy.deepcopy(v) for n, v in values.items()}
        found |= {f"rate {i}": g["lr"] for i, g in enumerate(optimizer.param_groups)}
    return found


def train(module: nn.Module, run: Any, optimizer: torch.optim.Optimizer, xs: list[torch.Tensor]) -> Found:
    """The plain loop."""
    losses = []
    for x in xs:
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses)


# --- the step around a compiled module -------------------------------------------------------------------------------


@loop
def adam(compiled: Compiled) -> Found:
    module = perceptron()
    return train(module, compiled(module), torch.optim.Adam(module.parameters(), lr=0.1), batches())


@loop
def momentum_and_weight_decay_of_an_unused_layer(compiled: Compiled) -> Found:
    module = perceptron()
    module.unused = nn.Linear(2, 2)  # its gradient is None: no decay
    run = compiled(nn.Sequential(*list(module)[:3]))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    return train(module, run, optimizer, batches())


@loop
def batch_norm_then_evaluation(compiled: Compiled) -> Found:
    module = perceptron(nn.BatchNorm1d(6))
    run = compiled(module)
    found = train(module, run, torch.optim.SGD(module.parameters(), lr=0.1), batches())
    run.eval()
    with torch.no_grad():
        found["evaluation"] = run(batches()[0])
    run.train()
    found["training again"] = run(batches()[1]).detach()
    return found | {f"buffer {n} at last": b.clone() for n, b in module.named_buffers()}


@loop
def accumulated_gradients_clipped(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    losses, norms = [], []
    for x in batches(6):
        for part in x.chunk(3):
            loss = run(part).square().mean() / 3
            loss.backward()
            losses.append(loss)
        norms.append(clip_grad_norm_(module.parameters(), 0.05))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return state_of(module, optimizer, losses=losses) | {f"norm {i}": n for i, n in enumerate(norms)}


@loop
def average_of_weights(compiled: Compiled) -> Found:
    module = perceptron()
    averaged = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    run, teacher = compiled(module), compiled(averaged)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for x in batches():
        with torch.no_grad():
            target = teacher(x)
        loss = (run(x) - target - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(module)
        losses.append(loss)
    return state_of(module, optimizer, losses=losses) | {
        f"average {n}": p.detach().clone() for n, p in averaged.named_parameters()
    }


@loop
def scaled_under_autocast(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    losses = []
    for x in batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses) | {"scale": scaler.get_scale()}


@loop
def autocast_inside_the_module(compiled: Compiled) -> Found:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = self.inner(x)
            return y.float()

    module = Mixed()
    return train(module, compiled(module), torch.optim.SGD(module.parameters(), lr=0.1), batches())


@loop
def rate_that_is_a_tensor(compiled: Compiled) -> Found:
    module = perceptron()
    optimizer = torch.optim.Adam(module.parameters(), lr=torch.tensor(0.1))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    run = compiled(module)
    losses = []
    for x in batches():
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses)


@loop
def optimizer_in_backward_hooks(compiled: Compiled) -> Found:
    module = perceptron()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in module.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    run = compiled(module)
    losses = []
    for x in batches():
        loss = run(x).square().mean()
        loss.backward()
        losses.append(loss)
    return state_of(module, losses=losses)


@loop
def lbfgs_calls_its_closure(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    optimizer = torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=2)
    losses = []
    for x in batches():

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            return loss

        losses.append(optimizer.step(closure))
    return state_of(module, losses=losses)


@loop
def layers_frozen_and_thawed(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for index, x in enumerate(batches()):
        module[0].requires_grad_(index != 1)
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses)


@loop
def parameters_replaced_between_steps(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    losses = []
    for x in batches():
        loss = run(x).square().mean()
        loss.backward()
        losses.append(loss)
        vector_to_parameters(parameters_to_vector(module.parameters()).detach() * 0.9, module.parameters())
        module[2].weight = nn.Parameter(module[2].weight.detach() + 0.01)
        module.load_state_dict({n: v * 1.1 for n, v in module.state_dict().items()})
    return state_of(module, losses=losses)


# --- the step inside a compiled function -----------------------------------------------------------------------------


@loop
def forward_and_gradients_in_one_function(compiled: Compiled) -> Found:
    module = perceptron()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def gradients(x: torch.Tensor) -> Any:
        loss = module(x).square().mean()
        return loss, torch.autograd.grad(loss, list(module.parameters()))

    run = compiled(gradients)
    losses = []
    for x in batches():
        loss, found = run(x)
        for parameter, gradient in zip(module.parameters(), found, strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses)


@loop
def descent_by_hand_in_one_function(compiled: Compiled) -> Found:
    module = perceptron()

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = module(x).square().mean()
        found = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), found, strict=True):
                parameter.sub_(gradient, alpha=0.1)
        return loss.detach()

    run = compiled(step)
    return state_of(module, losses=[run(x) for x in batches()])


@loop
def step_of_an_optimizer_compiled(compiled: Compiled) -> Found:
    module = perceptron()
    optimizer = torch.optim.AdamW(module.parameters(), lr=torch.tensor(0.1), capturable=False)

    @compiled
    def step() -> torch.Tensor:
        norm = clip_grad_norm_(module.parameters(), 0.05)
        optimizer.step()
        return norm

    losses = []
    for x in batches():
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        losses += [loss, step()]
    return state_of(module, optimizer, losses=losses)


@loop
def whole_step_in_one_function(compiled: Compiled) -> Found:
    module = perceptron()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        clip_grad_norm_(module.parameters(), 0.05)
        optimizer.step()
        return loss.detach()

    return state_of(module, optimizer, losses=[step(x) for x in batches()])


@loop
def moving_average_inside_the_forward(compiled: Compiled) -> Found:
    class Normal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            result = (y - self.mean) * y
            with torch.no_grad():
                self.mean.mul_(0.5).add_(y.mean(0), alpha=0.5)
                self.calls.add_(1)
            return result

    module = Normal()
    return train(module, compiled(module), torch.optim.SGD(module.parameters(), lr=0.1), batches())


@loop
def teacher_follows_inside_the_function(compiled: Compiled) -> Found:
    student, teacher = perceptron(), perceptron()
    teacher.requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (student(x) - teacher(x)).square().mean()
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 0.25)
        return loss

    run = compiled(step)
    losses = []
    for x in batches():
        optimizer.zero_grad()
        loss = run(x)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    found = state_of(student, optimizer, losses=losses)
    return found | {f"teacher {n}": p.clone() for n, p in teacher.named_parameters()}


@loop
def gradient_penalty(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for x in batches():
        x.requires_grad_()
        optimizer.zero_grad()
        y = run(x)
        (inner,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = y.square().mean() + inner.square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return state_of(module, optimizer, losses=losses)


# --- weights that are shared, or made of others ----------------------------------------------------------------------


@loop
def tied_weights(compiled: Compiled) -> Found:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Embedding(7, 4)
            self.write = nn.Linear(4, 7, bias=False)
            self.write.weight = self.read.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.write(self.read(ids))

    module = Tied()
    ids = [torch.randint(0, 7, (3,), generator=torch.Generator().manual_seed(i)) for i in range(STEPS)]
    return train(module, compiled(module), torch.optim.Adam(module.parameters(), lr=0.1), ids)


def parametrized(name: str, make: Callable[[nn.Module], Any]) -> None:
    def body(compiled: Compiled) -> Found:
        module = perceptron()
        make(module[0])
        run = compiled(module)
        found = train(module, run, torch.optim.SGD(module.parameters(), lr=0.1), batches())
        run.eval()
        with torch.no_grad():
            found["evaluation"] = run(batches()[0])
        return found | {f"buffer {n} at last": b.clone() for n, b in module.named_buffers()}

    body.__name__ = name
    loop(body)


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).mT


parametrized("weight_norm", parametrizations.weight_norm)
parametrized("weight_norm_of_old", nn.utils.weight_norm)
parametrized("spectral_norm", parametrizations.spectral_norm)
parametrized("spectral_norm_of_old", nn.utils.spectral_norm)
parametrized("orthogonal_by_cayley", lambda m: parametrizations.orthogonal(m, orthogonal_map="cayley"))
parametrized("orthogonal_by_householder", lambda m: parametrizations.orthogonal(m, orthogonal_map="householder"))
parametrized("orthogonal_by_matrix_exp", lambda m: parametrizations.orthogonal(m, orthogonal_map="matrix_exp"))


@loop
def parametrization_cached(compiled: Compiled) -> Found:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            parametrize.register_parametrization(self.inner, "weight", Symmetric())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with parametrize.cached():
                return self.inner(self.inner(x))

    module = Twice()
    return train(module, compiled(module), torch.optim.SGD(module.parameters(), lr=0.1), batches())


# --- torch.func ------------------------------------------------------------------------------------------------------


@loop
def functional_call_of_a_compiled_module(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(lambda weights, x: functional_call(module, weights, (x,)).square().mean())
    weights = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters()}
    losses = []
    for x in batches():
        loss = run(weights, x)
        found = torch.autograd.grad(loss, list(weights.values()))
        weights = {n: (w.detach() - 0.1 * g).requires_grad_() for (n, w), g in zip(weights.items(), found, strict=True)}
        losses.append(loss)
    return state_of(module, losses=losses) | {f"weight {n}": w.detach() for n, w in weights.items()}


@loop
def grad_inside(compiled: Compiled) -> Found:
    module = perceptron()

    def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(module, weights, (x,)).square().mean()

    @compiled
    def step(weights: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        found, loss = grad_and_value(loss_of)(weights, x)
        return {n: w - 0.1 * found[n] for n, w in weights.items()}, loss

    weights = {n: p.detach() for n, p in module.named_parameters()}
    losses = []
    for x in batches():
        weights, loss = step(weights, x)
        losses.append(loss)
    return state_of(module, losses=losses) | {f"weight {n}": w for n, w in weights.items()}


@loop
def gradients_per_sample(compiled: Compiled) -> Found:
    module = perceptron()

    def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(module, weights, (x[None],)).square().mean()

    run = compiled(vmap(grad(loss_of), in_dims=(None, 0)))
    weights = {n: p.detach() for n, p in module.named_parameters()}
    found: Found = {}
    for index, x in enumerate(batches()):
        found |= {f"gradients {n} {index}": g for n, g in run(weights, x).items()}
    return found


@loop
def ensemble_of_stacked_modules(compiled: Compiled) -> Found:
    modules = [perceptron() for _ in range(3)]
    weights, buffers = stack_module_state(modules)
    base = copy.deepcopy(modules[0]).to("meta")

    def call(weights: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(base, (weights, buffers), (x,))

    run = compiled(lambda w, b, x: vmap(call, (0, 0, None))(w, b, x))
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.1)
    losses = []
    for x in batches():
        optimizer.zero_grad()
        loss = run(weights, buffers, x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return {f"loss {i}": v.detach() for i, v in enumerate(losses)} | {f"weight {n}": w for n, w in weights.items()}


@loop
def vmap_over_a_compiled_function(compiled: Compiled) -> Found:
    module = perceptron()
    run = compiled(lambda x: module(x).square().sum())
    return {f"{i}": vmap(run)(x).detach() for i, x in enumerate(batches())}
