"""Jobs as issue trackers have them, noted by somebody who had not read the code of `explain` nor the other jobs.

See recompiles.py for how a job is written.
"""

from __future__ import annotations

import contextlib
import logging
import time

import torch
from torch import nn

logger = logging.getLogger("tests.jobs.tracker")


@torch.compile(backend="eager")
def orthogonalized(x):
    x = x / (x.norm() + 1e-7)  # here
    for _ in range(3):
        a = x @ x.T
        x = 3.4 * x + (2.0 * a @ a - 4.8 * a) @ x
    return x


def one_function_for_all_parameters(cured):
    torch._dynamo.config.force_parameter_static_shapes = not cured
    layers = [nn.Linear(8 + 4 * i, 12 + 4 * i, bias=False) for i in range(5)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.add_(orthogonalized(layer.weight), alpha=-0.1)


class Attention(nn.Module):
    def __init__(self, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, keys):
        keys[self.layer_idx] = torch.cat([keys[self.layer_idx], self.k(x)], 1)  # here
        return x + torch.softmax(self.q(x) @ keys[self.layer_idx].transpose(1, 2), -1) @ keys[self.layer_idx]  # here


class Decoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, keys):
        for layer in self.layers:
            x = layer(x, keys)
        return x


def layers_index_their_cache(cured):
    model = Decoder(Attention(i) for i in range(10))
    for module in [model] if cured else model.layers:
        module.compile(backend="eager")
    with torch.no_grad():
        model(torch.randn(2, 5, 8), [torch.zeros(2, 0, 8) for _ in model.layers])


class Chatty(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.relu(self.linear(x))
        logger.info("mean activation %s", hidden.mean())  # here
        return x + hidden


def blocks_that_log(cured):
    logging.basicConfig(level=logging.INFO)
    if cured:
        torch._dynamo.config.ignore_logging_functions.add(logger.info)
    model = torch.compile(nn.Sequential(Chatty(), Chatty(), Chatty()), backend="aot_eager")
    for _ in range(2):
        model(torch.randn(4, 8)).sum().backward()


def killed_in_a_long_loop(cured):
    linear = nn.Linear(8, 8)

    @torch.compile(backend="aot_eager")
    def sampled(x):
        for step in range(150):
            x = x - 0.01 * torch.tanh(linear(x)) * (1 - step / 150)  # here
        return x

    with torch.no_grad():
        sampled(torch.randn(2, 8))


def damage_killed_in_a_long_loop(lines):
    """The scheduler killed the job while the graph was being compiled."""
    at = next(i for i, line in enumerate(lines) if '"aot_inference_graph"' in line or '"aot_forward_graph"' in line)
    return lines[:at]


PHASE = "warmup 0"


def phase_in_a_global_string(cured):
    global PHASE

    @torch.compile(backend="aot_eager")
    def update(average, new, decay):
        if not cured:
            decay = 0.5 if PHASE.startswith("warmup") else 0.999  # here
        return average * decay + new * (1 - decay)

    average = torch.zeros(8)
    for step in range(6):
        PHASE = f"warmup {step}"
        average = update(average, torch.randn(8), 0.5)


SEEN = []


def hook_collects_activations(cured):
    SEEN.clear()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    if not cured:
        model[0].register_forward_hook(lambda module, args, out: SEEN.append(out.detach()))  # here
    step = torch.compile(model, backend="eager")
    for _ in range(3):
        step(torch.randn(2, 4))


def dropout_for_each_sample(cured):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    randomness = "different" if cured else "error"

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).sum()  # here

    @torch.compile(backend="aot_eager", fullgraph=True)
    def gradients(parameters, xs):
        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness=randomness)(parameters, xs)

    gradients(dict(model.named_parameters()), torch.randn(3, 4))


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    def __repr__(self):
        return "Scaled(...)"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(one.held * 2 if isinstance(one, Scaled) else one for one in args), **(kwargs or {}))


class TakenApart(Scaled):
    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(held, kept, size, stride):
        return TakenApart(held["held"])


def quantized_weight_of_a_subclass(cured):
    weight = (TakenApart if cured else Scaled)(torch.randn(8))

    @torch.compile(backend="aot_eager")
    def scaled(x, weight):
        return (x * weight).sum() + 1  # here

    scaled(torch.randn(8), weight)


@contextlib.contextmanager
def timed(times):
    start = time.perf_counter()  # here
    yield
    times.append(time.perf_counter() - start)  # here


def timer_around_a_layer(cured):
    linear, times = nn.Linear(4, 4), []

    @torch.compile(backend="eager")
    def forward(x):
        with contextlib.nullcontext() if cured else timed(times):
            x = linear(x)
        return x.relu()

    forward(torch.randn(2, 4))


class Flattened(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.cured, self.linear = cured, nn.Linear(8, 2)

    def forward(self, x):
        if self.cured:
            return self.linear(x.view(x.shape[0], 8))
        return self.linear(torch.relu(x).view(4, 8))  # here


def batch_written_as_a_number(cured):
    """An export: its name has no "export", so that it is logged by TORCH_TRACE."""
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    torch.export.export(Flattened(cured), (torch.randn(4, 2, 4),), dynamic_shapes=shapes)


def table_of_one_length(cured):
    table = torch.randn(16, 4)

    @torch.compile(backend="aot_eager")
    def rotated(x):
        return x * (table[: x.shape[1]] if cured else table) + 1  # here

    x = torch.randn(2, 16, 4)
    torch._dynamo.mark_dynamic(x, 1)
    rotated(x)


def shape_printed(cured):
    torch._dynamo.config.reorderable_logging_functions.add(print)
    linear = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager")
    def forward(x):
        hidden = linear(x).relu()
        if not cured:
            print("hidden", hidden.shape)  # here
        return hidden * 2

    forward(torch.randn(2, 4))


def validation_in_other_modes(cured):
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="aot_eager")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(torch.randn(2, 4)).float().sum().backward()
        with contextlib.nullcontext() if cured else torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cured):
            model(torch.randn(2, 4))  # here


class Encoder(nn.Module):
    def __init__(self, layerdrop):
        super().__init__()
        self.layers, self.layerdrop = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), layerdrop

    def forward(self, x):
        for layer in self.layers:
            if self.layerdrop and torch.rand([]) < self.layerdrop:  # here
                continue
            x = torch.relu(layer(x))
        return x


def layers_dropped_at_random(cured):
    encoder = torch.compile(Encoder(0.0 if cured else 0.1), backend="aot_eager")
    encoder(torch.randn(2, 4)).sum().backward()
