"""The kinds of public sample logs, remade: tlparse's test inputs and the logs that PyTorch's docs show.

See recompiles.py for how a job is written. Where the sample log itself is damaged, a function `damage_NAME` does that
to the log that the job wrote.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.fx.passes.split_module import split_module


@torch.library.custom_op("samples::channels_last_bar", mutates_args=())
def channels_last_bar(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last).clone()


@channels_last_bar.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.channels_last)


def simple(cured):
    @torch.compile
    def forward(x, weight):
        return channels_last_bar((x @ weight).view(1, 4, 4, 4))

    forward(torch.randn(8, 8), torch.randn(8, 8))


def corrupted_payload(cured):
    simple(cured)


def damage_corrupted_payload(lines):
    """One payload of JSON is cut in its middle, as in simple_corrupted_json.log."""
    at = next(i for i, line in enumerate(lines) if line.startswith("\t{") and len(line) > 80)
    return [*lines[:at], lines[at][:40] + "\n", *lines[at + 1 :]]


def ends_in_the_middle(cured):
    training_step(cured)


def damage_ends_in_the_middle(lines):
    """The process was killed: the log ends while the graph was being compiled."""
    at = next(i for i, line in enumerate(lines) if '"aot_joint_graph"' in line)
    return lines[: at + 3]


def graph_break_metrics(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        x = torch.cos(x)
        if not cured:
            torch._dynamo.graph_break()  # here
        return torch.sin(x)

    forward(torch.randn(4))
    forward(torch.randn(4))


def broken_backend(graph, inputs):
    raise RuntimeError("broken backend")  # here


def compile_failure(cured):
    @torch.compile(backend="eager" if cured else broken_backend)
    def forward(x):  # here
        return torch.cos(x)

    forward(torch.randn(4))


def training_step(cured):
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1)), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def chromium_events(cured):
    @torch.compile
    def forward(x, y):
        return x @ y @ y

    for _ in range(2):
        forward(torch.randn(4, 4), torch.randn(4, 4))


def cache_hit(cured):
    @torch.compile
    def forward(x):
        return x @ x.T

    for _ in range(2):
        torch._dynamo.reset()
        forward(torch.randn(6, 6))


def cache_hit_and_miss(cured):
    def run(bias):
        torch._dynamo.reset()

        @torch.compile
        def scores(q, mask, scale):  # here
            if cured:
                return torch.addmm(mask, q @ scale, q.T)
            return torch.addmm(mask, q, q.T, alpha=bias)  # here

        scores(torch.randn(4, 4), torch.zeros(4, 4), torch.eye(4) * bias)

    run(0.5)
    run(0.5)
    run(0.25)


class Positive(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.cured = cured

    def forward(self, x, y):
        count = y.item()
        if self.cured:
            torch._check(count >= 2)
            torch._check(count < x.shape[0])
        return x[:count].sum() + (x.new_ones(count) if count > 1 else x).sum()  # here


def draft_export(cured):
    torch.export.draft_export(Positive(cured), (torch.randn(6), torch.tensor(4)))


class AddsAGuard(nn.Module):
    def __init__(self, cured):
        super().__init__()
        self.cured = cured

    def forward(self, x):
        if not self.cured and x.shape[0] == 6:  # here
            return x + 1
        return x * 2


def export_adds_a_guard(cured):
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    torch.export.draft_export(AddsAGuard(cured), (torch.randn(6, 2),), dynamic_shapes=shapes)


def export_succeeds(cured):
    shapes = {"x": {0: torch.export.Dim("rows")}}
    torch.export.export(AddsAGuard(True), (torch.randn(6, 2),), dynamic_shapes=shapes)


def provenance(cured):
    torch._inductor.config.trace.provenance_tracking_level = 1

    @torch.compile
    def forward(x, weight, bias):
        return torch.addmm(bias, x, weight)

    forward(torch.randn(4, 8), torch.randn(8, 4), torch.randn(4))


def compiled_backward_hook(cured):
    def clip(gradient):
        if not cured:
            print("gradient", gradient.shape)  # here
        return gradient.clamp(-1, 1)

    model = nn.Linear(4, 4)
    model.weight.register_hook(clip)

    @torch.compile(backend="aot_eager")
    def train(x):
        return model(x).sum()

    loss = train(torch.randn(2, 4))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        loss.backward()


def automatic_dynamic(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):  # here
        return torch.relu(x).sum()

    for length in (5, 7, 9):
        x = torch.randn(length, 2)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
        forward(x)


def restarts(cured):
    def scale(x):
        if not cured:
            torch._dynamo.graph_break()  # here
        return x * 3

    @torch.compile(backend="aot_eager")
    def forward(x):
        y = torch.sin(x)
        y = scale(y)
        return y + 1

    forward(torch.randn(3))


def pieces_backend(graph, inputs):
    """What vLLM does: the graph is cut at attention, and each piece is compiled on its own."""
    number = {}

    def piece(node):
        number.setdefault("at", 0)
        if "softmax" in str(node.target):
            number["at"] += 2
            return number["at"] - 1
        return number["at"]

    split = split_module(graph, graph, piece)
    for name, part in list(split.named_children()):
        setattr(split, name, part)
    return split


def vllm_pieces(cured):
    @torch.compile(backend=pieces_backend, fullgraph=True, dynamic=True)
    def model(x, weight):
        x = x @ weight
        x = torch.softmax(x, -1)
        return torch.relu(x @ weight)

    for tokens in (8, 4):
        model(torch.randn(tokens, 16), torch.randn(16, 16))


def nested_subgraph(cured):
    @torch.compile(backend="aot_eager")
    def forward(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    forward(torch.randn(4))


def symbol_specialised(cured):
    @torch.compile(backend="aot_eager", dynamic=True)
    def forward(x):
        if cured:
            return torch.sin(x).sum()
        total = torch.zeros(())
        for row in range(x.shape[0]):  # here
            total = total + torch.sin(x[row])
        return total

    for length in (6, 8, 10):
        forward(torch.randn(length))


def several_functions(cured):
    """The page of tlparse that PyTorch's docs show: functions of one file, each compiled once."""

    @torch.compile(backend="aot_eager")
    def encode(x):
        return torch.sin(x)

    @torch.compile(backend="aot_eager")
    def decode(x):
        return torch.cos(x)

    decode(encode(torch.randn(3)))
    torch.compile(torch.nn.functional.gelu, backend="aot_eager")(torch.randn(3))
    torch.compile(torch.nn.functional.softplus, backend="aot_eager")(torch.randn(3))


def checkpointed(cured):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    @torch.compile(backend="aot_eager")
    def forward(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum()

    forward(torch.randn(2, 4, requires_grad=True)).backward()


def nothing_compiled(cured):
    @torch.compile(backend="aot_eager")
    def tokenize(text):  # here
        return [ord(letter) for letter in text]

    tokenize("a job")
