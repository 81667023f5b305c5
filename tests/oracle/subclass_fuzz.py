"""The random programs of `strategy.py`, their inputs made of two tensors each.

    python -m tests.oracle.subclass_fuzz --n 200

Draws programs, builds their inputs under TwoTensorMode, which makes each new tensor one of two, and judges ours and
torch's on those that eager can run. Prints a row for each and every program on which ours is wrong.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import Counter
from dataclasses import replace

import torch
from torch.testing._internal.two_tensor import TwoTensorMode

from .compare import CANDIDATES, EagerRaised, Expectation, Setup, Trial, expect, judge
from .strategy import from_seed


def of_two(program: Trial) -> Trial:
    """The program with inputs that are made of two tensors."""

    def build(original: object) -> Setup:
        with TwoTensorMode():
            return original()  # type: ignore[operator, no-any-return]

    builds = tuple(lambda original=original: build(original) for original in program.builds)
    return replace(program, name=f"{program.name} of two", builds=builds)


def drawn(seed: int, index: int) -> tuple[Trial, Expectation] | None:
    """A program and what eager does with it; None where eager can't run it on such tensors."""
    program = of_two(from_seed(seed, index).program)
    try:
        return program, expect(program)
    except EagerRaised:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle.subclass_fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--candidates", default="ours,torch")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tallies: dict[str, Counter[str]] = {name: Counter() for name in options.candidates.split(",")}
    raised: Counter[str] = Counter()
    for index in range(options.start, options.start + options.n):
        found = drawn(options.seed, index)
        if found is None:
            continue
        program, expected = found
        for name, tally in tallies.items():
            verdict = judge(program, CANDIDATES[name](), expected)
            tally[verdict.status] += 1
            if name.startswith("ours") and verdict.status == "wrong":
                print(f"# {index}\n{program.source}\n{verdict}", flush=True)
            elif name.startswith("ours") and verdict.status == "raised":
                raised[f"{index} {verdict.failures[0][1]}"[:170]] += 1
    for text in raised:
        print(text)
    for name, tally in tallies.items():
        print(name, dict(tally))
    return 1 if any(tally["wrong"] for name, tally in tallies.items() if name.startswith("ours")) else 0


if __name__ == "__main__":
    raise SystemExit(main())
