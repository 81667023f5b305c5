"""The first thing a newcomer runs: one GPT-2 training step through the whole pipeline, and proof that it is right.

`python -m aotviz demo` builds a small GPT-2 from its configuration (random weights, nothing is downloaded), compiles
loss and logits with `aotviz.compile`, runs forward and backward, and runs the same step in eager. It then prints how
far the two are apart, what each stage did, the facts about inputs and outputs, and the generated Python. It also
writes a recording, and a page that shows it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

import aotviz
from aotviz.reading.recording import Compilation, Recording
from aotviz.recording.terminal import table
from aotviz.traced import TrainingStep

TOLERANCE = 1e-4  # largest difference that the order of float32 operations explains, for values of order 1
BATCH, LENGTH, VOCABULARY = 2, 64, 1024  # sequences, tokens of each, different tokens


class DemoError(Exception):
    """The demo can't run here; the message says what to do."""


def gpt2(layers: int, seed: int = 0) -> tuple[TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    """A small GPT-2 with random weights, and a batch for it. Raises DemoError if transformers is missing.

    The causal mask is passed as a tensor. Without it, transformers reads the values of a mask to decide whether it
    needs one, and values cannot be traced. Dropout is off so that two runs can be compared.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from transformers import GPT2Config, GPT2LMHeadModel  # takes seconds, and only the demo needs it
    except ImportError as error:
        raise DemoError(f"the demo needs transformers ({error}). Install it: pip install 'aotviz[demo]'") from error
    torch.manual_seed(seed)
    sizes = {"n_layer": layers, "n_head": 4, "n_embd": 128, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    dropout = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    others = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False, "attn_implementation": "sdpa"}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **dropout, **others))
    model.loss_type = "ForCausalLM"  # if transformers infers it, it logs that, which breaks the graph
    step = TrainingStep(model).train()
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None]
    return step, (tokens, mask)


def choose_backend(asked: str | None) -> tuple[str, str]:
    """The backend, and a remark to print. On a CPU, Inductor generates C++ and needs a compiler for it."""
    if asked is not None:
        return asked, ""
    if any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "g++", "clang++", "cl")):
        return "inductor", ""
    return (
        "eager",
        "Inductor needs a C++ compiler, and none is on PATH: the graphs run uncompiled (backend eager).\n",
    )


@dataclass
class Progress:
    """Prints one line per stage: its name when it begins, its time when it ends. `elapsed_ns` is None until then."""

    stream: TextIO

    def __call__(self, stage: str, elapsed_ns: int | None) -> None:
        if elapsed_ns is None:
            self.stream.write(f"  {stage + ' ':.<24} ")
        else:
            self.stream.write(f"{elapsed_ns / 1e6:9.1f} ms\n")
        self.stream.flush()


def run_step(step: Any, module: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """One forward and backward: outputs and gradients by name, copied."""
    module.zero_grad(set_to_none=True)
    loss, logits = step(*batch)
    loss.backward()
    found = {"loss": loss.detach().clone(), "logits": logits.detach().clone()}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            found[f"grad {name.removeprefix('model.')}"] = parameter.grad.clone()
    return found


def agreement(ours: dict[str, torch.Tensor], eager: dict[str, torch.Tensor]) -> tuple[str, bool]:
    """A table of largest differences, and whether all are within TOLERANCE. Raises DemoError if a value is missing."""
    missing = sorted(set(ours) ^ set(eager))
    if missing:
        raise DemoError(f"only one of aotviz and eager has {', '.join(missing)}: this is a bug in aotviz")
    rows, right = [], True
    for name, expected in eager.items():
        apart = (ours[name] - expected).abs().max().item()
        right &= apart <= TOLERANCE  # false for nan, too
        rows.append((name, "x".join(map(str, expected.shape)) or "scalar", f"{apart:.1e}"))
    return table(("value", "shape", "largest difference"), rows), right


def stage_table(compilation: Compilation) -> str:
    rows = [
        (row["stage"], f"{row['elapsed_ms']:.1f}", row["nodes_before"], row["nodes_after"], row["summary"])
        for row in compilation.stages.to_dict("records")
    ]
    return table(("stage", "ms", "nodes before", "nodes after", "what changed"), rows)


def input_table(compilation: Compilation) -> str:
    rows = [
        (i.name, i.kind, i.dtype.removeprefix("torch."), "x".join(map(str, i.shape)), i.mutation, i.storage, i.reason)
        for i in compilation.data.inputs
    ]
    return table(("input", "kind", "dtype", "shape", "mutation", "storage", "why"), rows)


def output_table(compilation: Compilation) -> str:
    rows = [(o.name, o.output_type, o.base, " ".join(o.view_chain), o.reason) for o in compilation.data.outputs]
    return table(("output", "OutputType", "rebuilt from", "views", "why"), rows)


def section(title: str, text: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}\n{text}")


def run(layers: int = 2, backend: str | None = None, out: Path = Path(".")) -> int:
    """The demo; 0 if aotviz and eager agree, else 1. Raises DemoError."""
    if layers < 1:
        raise DemoError(f"--layers must be at least 1, and is {layers}")
    out.mkdir(parents=True, exist_ok=True)
    backend, remark = choose_backend(backend)
    step, batch = gpt2(layers)
    parameters = sum(parameter.numel() for parameter in step.parameters())
    print(f"GPT-2, {layers} layers, {parameters / 1e6:.1f} M parameters: one training step through backend {backend!r}")
    print(remark, end="")
    expected = run_step(step, step, batch)
    started = time.perf_counter()
    compiled = aotviz.compile(step, backend=backend, cache=False, on_stage=Progress(sys.stdout))
    found = run_step(compiled, step, batch)
    print(f"  compiled and ran in {time.perf_counter() - started:.1f} s")

    recording: Recording = compiled.recording
    compilation = recording[-1]
    differences, right = agreement(found, expected)
    section("Agreement with eager", differences)
    section("Stages", stage_table(compilation))
    section("Inputs", input_table(compilation))
    section("Outputs", output_table(compilation))
    section("What runs on every call", compiled.source)

    page, recorded = out / "demo.html", out / "demo.aotviz"
    recording.save(recorded)
    recording.to_html(page)
    shown = f"open it with aotviz.load, or with: python -m aotviz show {recorded}"
    section("Written", f"{page}  open it in a browser\n{recorded}  {shown}")
    verdict = "equals eager" if right else "DIFFERS from eager"
    print(f"\nThe compiled step {verdict} (tolerance {TOLERANCE:g}).")
    return 0 if right else 1
