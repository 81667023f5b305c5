"""The command line of the benchmarks.

    python -m benchmarks                        # all of them: some minutes
    python -m benchmarks calls                  # one: any of those that --help lists
    python -m benchmarks --quick                # few rounds, to see that they run; the figures are rough

Writes results/<name>.json beside this file (or into --out), and prints a table each. The exit status is 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from . import (
    cache_miss,
    calls,
    compiled_autograd,
    compiling,
    diffing,
    explaining,
    first_compile,
    groups,
    memory,
    memory_plan,
    model_explorer,
    opening,
    recording,
    results,
    step,
    subclasses,
    trace_reading,
    viewer,
    warm_start,
    watching,
)

Benchmark = Callable[[bool], list[results.Result]]
BENCHMARKS: dict[str, Benchmark] = {
    "calls": lambda quick: [calls.run(rounds=5, repeats=100) if quick else calls.run()],
    "subclasses": lambda quick: [subclasses.run(rounds=5, repeats=100) if quick else subclasses.run()],
    "step": lambda quick: [step.run(rounds=1, layers=1, backends=["aot_eager"]) if quick else step.run()],
    "compile": lambda quick: compiling.run(rounds=1, layers=2) if quick else compiling.run(),
    "warm_start": lambda quick: [warm_start.run(1, (1,), warm_start.NOT_TORCHS[:1]) if quick else warm_start.run()],
    "cache_miss": lambda quick: [cache_miss.run(1, (1,)) if quick else cache_miss.run()],
    "first_compile": lambda quick: [first_compile.run(1, first_compile.CASES[:1]) if quick else first_compile.run()],
    "memory": lambda quick: [memory.run(operators=20) if quick else memory.run()],
    "memory_plan": lambda quick: [memory_plan.run(rounds=1, sizes=(2,)) if quick else memory_plan.run()],
    "compiled_autograd": lambda quick: [
        compiled_autograd.run(1, layers=1, step_layers=1, backend="eager", seconds=1)
        if quick
        else compiled_autograd.run()
    ],
    "recording": lambda quick: [recording.run(rounds=1, layers=2) if quick else recording.run()],
    "watching": lambda quick: [watching.run(rounds=1, layers=1) if quick else watching.run()],
    "trace_reading": lambda quick: [
        trace_reading.run(1, 3_000_000, ranks=4, rank_nbytes=1_000_000, rank_rounds=1) if quick else trace_reading.run()
    ],
    "explain": lambda quick: [explaining.run(1, (20, 50), ("sizes",), 4, 1_000_000) if quick else explaining.run()],
    "viewer": lambda quick: [viewer.run(rounds=1, sizes=(200,), seconds=1) if quick else viewer.run()],
    "groups": lambda quick: [groups.run(rounds=1, nodes=5_000) if quick else groups.run()],
    "diffing": lambda quick: [diffing.run(rounds=1, nodes=2_000) if quick else diffing.run()],
    "opening": lambda quick: [opening.run(rounds=1, layers=2) if quick else opening.run()],
    "model_explorer": lambda quick: model_explorer.run(rounds=1, sizes=(200,)) if quick else model_explorer.run(),
}
# Run only by name: one needs what is not among aotviz's dependencies, the others take a JupyterLab or a large page.
ASKED_FOR = {"model_explorer", "diffing", "opening"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(BENCHMARKS)}; all if none")
    parser.add_argument("--quick", action="store_true", help="few rounds and a small model")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    os.environ["AOTVIZ_CACHE_DIR"] = "off"  # what is measured is compiled; warm_start names folders
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    missed = 0
    for name in options.names or (name for name in BENCHMARKS if name not in ASKED_FOR):
        for found in BENCHMARKS[name](options.quick):
            print(results.table(found), end=f"\n{results.write(found, options.out)}\n\n", flush=True)
            missed += sum(row.met is False for row in found.rows)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
