"""The second process: from the first call of a model to its first gradients, when an earlier process filled the caches.

    python -m benchmarks warm_start

CPU time of a training step's first forward and backward, on Inductor, with warm caches: torch's own AOT cache and ours.
Imports are left out on both sides: each process first compiles another, tiny function. Most of what remains is Dynamo,
which runs in each process and is the same on both sides; `Dynamo` is the same step with Dynamo alone (backend="eager").
So there are two figures: of the whole beside torch's, and of what comes after Dynamo as a share of the whole.

"with Dynamo's cache" is the same with `torch._dynamo.config.caching_precompile`, where Dynamo does not run in the
second process, beside torch without and with this setting. transformers' GPT-2 has a graph break in a property, with
which torch's Dynamo fails under this setting; here its loss is set, so that it has none, on all sides.

The last rows are programs that torch's cache may not have in the second process: a custom autograd.Function, a function
with a renamed argument, and equal blocks that are compiled apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from .measure import ratio
from .results import Result, Row, result

LAYERS = (4, 12)
PROGRAM = """
import json, logging, sys, time
import torch
from torch import nn
who, layers, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
KEPT, WHOLE = " with Dynamo's cache", "GPT-2 without a graph break"
torch.set_num_threads(1)
torch.manual_seed(0)
if who.endswith(KEPT):
    who = who.removesuffix(KEPT)
    torch._dynamo.config.caching_precompile = True
    logging.getLogger("torch._dynamo.guards").setLevel(logging.ERROR)  # a line for each guard that torch leaves out
backend = {"torch": "inductor", "ours": "aotviz", "uncached": "aotviz", "Dynamo": "eager"}[who]
options = {"options": {"cache": False}} if who == "uncached" else {}
if backend == "aotviz":
    import aotviz.frontends.backend
from benchmarks.step_models import MODELS

spent = [0.0]

def timed(owner, name):
    run = getattr(owner, name)
    def timing(*args, **kwargs):
        begun = time.process_time()
        try:
            return run(*args, **kwargs)
        finally:
            spent[0] += time.process_time() - begun
    setattr(owner, name, timing)

if who == "ours":
    from aotviz.frontends import cached
    timed(cached, "question")
    timed(cached, "look_up")
    timed(cached.Keeper, "after")

def tiny(x, w):
    return (x @ w).relu().sum()

torch.compile(tiny, backend=backend, **options)(torch.ones(4, 3), torch.ones(3, 3, requires_grad=True)).backward()

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + x * 0

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(64, 256), nn.Linear(256, 64), nn.LayerNorm(64)

    def forward(self, x):
        return x + self.two(torch.nn.functional.gelu(self.one(self.norm(x))))

if case.startswith("GPT-2"):
    model, batch = MODELS["GPT-2"](layers)
    if case == WHOLE:
        model.model.loss_type = "ForCausalLM"
    begun = time.process_time()
    step = lambda: run(**batch)[0]
    run = torch.compile(model, backend=backend, **options)
else:
    blocks = [Block() for _ in range(layers)]
    begun = time.process_time()
    x = torch.randn(8, 64)
    if case == "a custom autograd.Function":
        def whole(x):
            for block in blocks:
                x = Scaled.apply(block(x))
            return x.sum()
        run = torch.compile(whole, backend=backend, **options)
    elif case == "a renamed argument":
        name = "x" if sys.argv[4] == "first" else "y"
        scope = {"blocks": blocks}
        lines = (f"def whole({name}):", f"    for block in blocks: {name} = block({name})", f"    return {name}.sum()")
        exec("\\n".join(lines), scope)
        run = torch.compile(scope["whole"], backend=backend, **options)
    else:  # equal blocks, compiled apart
        parts = [torch.compile(block, backend=backend, **options) for block in blocks]
        def run(x):
            for part in parts:
                x = part(x)
            return x.sum()
    step = lambda: run(x)
wrapping = time.process_time() - begun  # what Dynamo kept is loaded there
spent[0], begun = 0.0, time.process_time() - wrapping
loss = step()
loss.backward()
seconds = time.process_time() - begun
if torch._dynamo.config.caching_precompile:
    torch.compiler.save_cache_artifacts()
print(json.dumps({"seconds": seconds, "loss": loss.item(), "in_cache": spent[0]}))
"""
KEPT, WHOLE = " with Dynamo's cache", "GPT-2 without a graph break"
NOT_TORCHS = ("a custom autograd.Function", "a renamed argument", "equal blocks, compiled apart")


class Ran(msgspec.Struct, frozen=True):
    """What one process found. `in_cache` are the CPU seconds in aotviz's cache; a hit's are those of all its work."""

    seconds: float
    loss: float
    in_cache: float


def _folder(root: str, who: str) -> Path:
    """The C++ compiler's command lines have no quotes around it."""
    return Path(root) / who.replace(" ", "_").replace("'", "")


def process(who: str, layers: int, case: str, folder: Path, turn: str) -> Ran:
    """A process that has its caches in `folder`."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, who, str(layers), case, turn],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "AOTVIZ_CACHE_DIR": str(folder / "aotviz"),
        },
    )
    if ran.returncode:
        raise RuntimeError(f"{who}, {case}: {ran.stderr[-2000:]}")
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=Ran)


def measured(layers: int, case: str, rounds: int, sides: Sequence[str] = ("Dynamo", "torch", "ours")) -> dict[str, Any]:
    """Median CPU seconds of each side's later processes."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        losses: dict[str, float] = {}
        filled = None
        for who in sides:
            folder = _folder(root, who)
            if filled is not None:
                _share_kernels(filled, folder)
            losses[who] = process(who, layers, case, folder, "first").loss
            filled = folder  # with the kernels of all before it
        times: dict[str, list[float]] = {who: [] for who in sides}
        for _ in range(rounds):
            for who in sides:
                warm = process(who, layers, case, _folder(root, who), "later")
                times[who].append(warm.seconds)
                if abs(warm.loss - losses[who]) > 1e-4:
                    raise RuntimeError(f"{who}: the loss was {losses[who]}, and with a warm cache it is {warm.loss}")
        found |= {who: median(took) for who, took in times.items()}
        found["times"] = times
        found["bytes"] = _entry_bytes(_folder(root, "ours") / "aotviz")
    return found


def _share_kernels(filled: Path, folder: Path) -> None:
    """Copy the C++ kernels of a cache, not its graphs: compiling them is most of the first process, not measured."""
    for kernels in (filled / "inductor").glob("??"):
        shutil.copytree(kernels, folder / "inductor" / kernels.name, dirs_exist_ok=True)


def _with_dynamos_cache(layers: int, rounds: int, case: str) -> list[Row]:
    sides = ("torch", "torch" + KEPT, "ours", "ours" + KEPT)
    found = measured(layers, case, rounds, sides)
    values, times = {who: found[who] for who in sides}, found["times"]
    return [
        Row(f"GPT-2 of {layers} layers{KEPT}", ratio(times["ours" + KEPT], times["torch"]), 0.5, values, "s"),
        Row("    torch with the same", ratio(times["ours" + KEPT], times["torch" + KEPT]), None, values, "s"),
    ]


def _entry_bytes(folder: Path) -> int:
    """The size of the largest entry, without its recording."""
    from aotviz.cache.store import Store

    store = Store(folder)
    keys = store.keys()
    held = [one for kept in keys for one in store.held(kept.key)]
    return max(sum(size for name, size in one.parts.items() if name != "recording") for one in held)


def run(
    rounds: int = 5,
    layers: Sequence[int] = LAYERS,
    others: Sequence[str] = NOT_TORCHS,
    models: tuple[str, str] = ("GPT-2", WHOLE),  # without and with Dynamo's cache
) -> Result:
    rows = []
    for count in layers:
        found = measured(count, models[0], rounds)
        times, dynamo = found["times"], found["Dynamo"]
        values = {who: found[who] for who in ("Dynamo", "torch", "ours")}
        rows.append(Row(f"GPT-2 of {count} layers", ratio(times["ours"], times["torch"]), 0.5, values, "s"))
        after = {who: max(found[who] - dynamo, 0.0) for who in ("torch", "ours")}
        rows.append(Row("    after Dynamo: share of the whole", after["ours"] / found["ours"], None, after, "s"))
        rows.append(Row("    bytes of the entry / 50,000", found["bytes"] / 50_000, 1.0, {"ours": found["bytes"]}, "B"))
        rows += _with_dynamos_cache(count, rounds, models[1])
    for case in others:
        found = measured(layers[-1], case, rounds)
        values = {who: found[who] for who in ("Dynamo", "torch", "ours")}
        rows.append(Row(case, ratio(found["times"]["ours"], found["times"]["torch"]), None, values, "s"))
    about = "CPU time of a second process from its first call to its first gradients, with warm caches, on Inductor"
    return result("warm_start", about, "ours / torch", rows, {"rounds": rounds})
