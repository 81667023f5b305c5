"""What real models need, planned from the recording, beside what weak references to all storages say.

    python -m tests.sweeps.planned_memory [name ...]            # the first table of docs/memory.md, "Compared"
    python -m tests.sweeps.planned_memory --changes [name ...]  # the second: the changes that lower the peak

One row for each model of tests/oracle/models.py: a training step, operator by operator. With `--changes`, one for each
of the three best changes that a partitioner can make; each is made, and its program runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch

import aotviz
from aotviz.lowerings import run_graph
from aotviz.recorder.live_storages import LiveStorages
from aotviz.recording import measured_bytes
from aotviz.recording.compilation import Compilation
from tests.oracle.models import FAMILIES, MORE, training_step

MODELS = (
    *("bert", "gpt2", "gptj", "gpt_neox", "roberta", "distilbert", "albert", "electra", "xlnet", "transformer"),
    *("lstm", "gru", "convolutions", "autoencoder", "clip", "opt", "swin"),
)
PARTITIONERS = ("default_partition", "min_cut_rematerialization_partition")
CHANGED = ("gpt2", "gptj", "albert", "swin", "autoencoder")


def stepped(name: str, partition_fn: Any) -> tuple[Compilation, list[measured_bytes.ComparedNode], list[str]]:
    """A training step's recording, its nodes planned beside measured, and where these differ."""
    torch.manual_seed(0)
    model, keywords = {**FAMILIES, **MORE}[name]()
    inputs = dict(keywords)
    args = inputs.pop("", ())
    compiled = aotviz.aot_module(model.eval(), run_graph, partition_fn=partition_fn)
    known = [*model.parameters(), *model.buffers()]
    known += [one for one in torch.utils._pytree.tree_leaves((args, inputs)) if isinstance(one, torch.Tensor)]
    step, seeds = training_step(lambda: compiled(*args, **inputs))
    step()
    model.zero_grad(set_to_none=True)
    with LiveStorages([*known, *seeds]) as mode:
        held = step()
        mode.close()
    del held
    rows, differ = measured_bytes.compared(compiled.recording[0].memory(), mode.ran)
    return compiled.recording[0], rows, differ


def peak(rows: list[measured_bytes.ComparedNode]) -> int:
    """Measured bytes at the peak, and the planned ones of what is there before."""
    return max(row.measured[0] + row.given for row in rows)


def models(names: list[str]) -> Iterator[str]:
    yield "| model | nodes compared | planned peak | measured peak | nodes that differ |"
    yield "| --- | --- | --- | --- | --- |"
    for name in names:
        _, rows, differ = stepped(name, PARTITIONERS[1])
        planned = max(row.planned[0] + row.given for row in rows)
        yield f"| `{name}` | {len(rows):,} | {planned:,} | {peak(rows):,} | {len(differ)} |"


def changes(names: list[str]) -> Iterator[str]:
    yield "| model | change | peak before | computed | measured | nodes that differ |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in names:
        compilation, before, _ = stepped(name, PARTITIONERS[0])
        made = [one for one in compilation.peak_changes(9) if one.schedule is not None][:3]
        for change in made:
            _, rows, differ = stepped(name, aotviz.policy(change))
            cells = f"{peak(before):,} | {change.peak:,} | {peak(rows):,} | {len(differ)}"
            yield f"| `{name}` | {change.name.replace('|', ' ')} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    rows = changes(chosen.names or [*CHANGED]) if chosen.changes else models(chosen.names or [*MODELS])
    for row in rows:
        print(row, flush=True)


if __name__ == "__main__":
    main()
