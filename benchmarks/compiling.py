"""What a compilation costs, without the compiler: our pipeline beside torch's, and where ours spends its time.

The program is one training step of a 12-layer GPT-2, small in width, since width costs nothing while tracing. Both
sides cut the joint graph with torch's own partitioner and hand the halves to a compiler that makes stubs. The time is
that of the first step, forward and backward, so that whatever is compiled late is in it. Ours records, as it does by
default.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module as torch_aot_module
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.utils._python_dispatch import _disable_current_modes

from aotviz.frontends.demo import gpt2
from aotviz.frontends.functions import aot_module

from .measure import in_turns, ratio
from .results import Result, Row, result

LAYERS = 12
PARTITIONERS = {"default partition": default_partition, "min-cut partition": min_cut_rematerialization_partition}


def stub(graph_module: Any, examples: Any) -> Callable[[list[Any]], list[Any]]:
    """A boxed compiler of graphs that hand out zeros of the right layout. It never runs the graph, nor its Python.

    Each call hands out new tensors. Autograd sets the `grad_fn` of a result, and that refers to the compiled graph. If
    the graph kept its results, this would be a cycle, and the garbage collector does not look into a `grad_fn` that
    several tensors share: no compilation would be freed.
    """
    (returned,) = next(iter(reversed(graph_module.graph.nodes))).args
    values = [node if node is None else node.meta["val"] for node in returned]
    with _disable_current_modes():  # torch compiles inside its fake mode
        kept = [zeros(value) if isinstance(value, torch.Tensor) else value for value in values]

    def run(args: list[Any]) -> list[Any]:
        args.clear()
        return [one.detach() if isinstance(one, torch.Tensor) else one for one in kept]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def zeros(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype).zero_()


def training_step(layers: int) -> tuple[torch.nn.Module, Any]:
    """The demo's model and batch, with the output layer's weight untied: torch's `aot_module` refuses tied ones."""
    step, batch = gpt2(layers)
    head = step.model.lm_head
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    return step, batch


class Step:
    """The first training step of a freshly compiled module. `compiled` is the latest one's module."""

    def __init__(self, compile: Callable[..., Any], model: torch.nn.Module, batch: Any, **options: Any) -> None:
        self.compile, self.model, self.batch, self.options = compile, model, batch, options
        self.compiled: Any = None

    def __call__(self) -> None:
        self.compiled = None
        self.compiled = self.compile(self.model, stub, **self.options)
        loss, _ = self.compiled(*self.batch)
        loss.backward()
        self.model.zero_grad(set_to_none=True)


def stage_times(step: Step) -> dict[str, int]:
    """Nanoseconds of each stage of the latest compilation."""
    times: dict[str, int] = defaultdict(int)
    for stage in step.compiled.recording[-1].outline.stages:
        times[stage.name] += stage.elapsed_ns
    return times


def run(rounds: int = 7, layers: int = LAYERS) -> list[Result]:
    """Two results: the whole compilation beside torch's, and ours by stage."""
    model, batch = training_step(layers)
    settings = {"rounds": rounds, "layers": layers}
    whole: list[Row] = []
    parts: list[Row] = []
    for label, partitioner in PARTITIONERS.items():
        theirs = Step(torch_aot_module, model, batch, partition_fn=partitioner)
        ours = Step(aot_module, model, batch, partition_fn=partitioner)
        stages: list[dict[str, int]] = []

        def watched(ours: Step = ours, stages: list[dict[str, int]] = stages) -> None:
            ours()
            stages.append(stage_times(ours))

        calls = {"torch": theirs, "ours": watched}
        in_turns(calls, 1, 1, collecting=True)  # imports and caches that later compilations find warm
        stages.clear()
        times = in_turns(calls, rounds, 1, collecting=True)
        medians = {name: median(found) / 1e6 for name, found in times.items()}
        whole.append(Row(label, ratio(times["ours"], times["torch"]), 0.75, medians, "ms"))
        parts += [Row(f"{label}: {name}", *_share(stages, name), "ms") for name in stages[0]]
    about = f"CPU time of compiling a training step of a {layers}-layer GPT-2, the compiler stubbed; recording on"
    by_stage = f"wall time of each of our stages, {layers}-layer GPT-2"
    return [
        result("compile", about, "ours / torch", whole, settings),
        result("stages", by_stage, "share", parts, settings),
    ]


def _share(stages: list[dict[str, int]], name: str) -> tuple[float, None, dict[str, float]]:
    share = median(one[name] / sum(one.values()) for one in stages)
    return share, None, {"ours": median(one[name] for one in stages) / 1e6}
