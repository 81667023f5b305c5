"""`make sweep-ops`: forward and backward of every float32 op_db sample, ours and torch's aot_function, against eager.

    python -m tests.oracle.sweep_ops --out sweep.jsonl                    # all of it; resumes where it stopped
    python -m tests.oracle.sweep_ops --out sweep.jsonl --retry            # once more what was not equal, and go on
    python -m tests.oracle.sweep_ops --every 12 --samples 1 --seed 3      # one sample of every twelfth op
    python -m tests.oracle.sweep_ops --op 'linalg.*' --show

Progress is kept by `progress.py`.  Left out, with the reason written down: layouts that are not strided (sparse inputs
can abort the process inside functionalisation), samples that eager refuses, samples on which eager differs from eager.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .compare import CANDIDATES, Candidate, EagerRaised, Setup, Trial, eager_itself, expect, judge
from .fuzz import cause, worse
from .progress import Log, Row, finished, run_side_by_side, shared, stable
from .samples import samples_of

# Not run at all, and why.
LEFT_OUT = {
    "to_sparse": "its result is sparse",
    "sparse.sampled_addmm": "its input is sparse",
    "sparse.mm": "its input is sparse",
    "empty_like": "its values are undefined",
    "empty": "its values are undefined",
    "empty_strided": "its values are undefined",
    "empty_permuted": "its values are undefined",
    "new_empty": "its values are undefined",
    "new_empty_strided": "its values are undefined",
}

BREADTH = 10  # samples of an op in the first pass


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def chosen_ops(every: int = 1, seed: int = 0, pattern: str = "") -> list[Any]:
    """The float32 ops whose name fits, or a seeded pick of one in `every`."""
    ops = [o for o in op_db if torch.float32 in o.supported_dtypes("cpu") and re.search(pattern, name_of(o))]
    if every == 1:
        return ops
    start = random.Random(repr(seed)).randrange(every)
    return ops[start::every]


class Samples:
    """One op's sample inputs as programs; a sample's tensors are built anew, storage by storage, for every run."""

    def __init__(self, op: Any, limit: int | None = None, device: str = "cpu"):
        self.op = op
        self.limit = limit
        self.device = device

    def __iter__(self) -> Iterator[tuple[str, Trial | str]]:
        torch.manual_seed(0)
        random.seed(0)
        samples = samples_of(self.op, torch.float32, self.op.supports_autograd, self.device)
        for k, sample in enumerate(samples):
            if self.limit is not None and k >= self.limit:
                return
            key = f"{name_of(self.op)}#{k}"
            yield key, sample_program(key, self.op.op, sample)


def sample_program(key: str, op: Any, sample: Any) -> Trial | str:
    """Tensors are arguments; everything else (numbers, dtypes, functions) is closed over. A string says why not."""
    flat, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    if any(
        x.layout is not torch.strided or type(x) not in (torch.Tensor, torch.nn.Parameter)
        for x in flat
        if isinstance(x, torch.Tensor)
    ):
        return "not a plain strided tensor"

    def f(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        args, kwargs = tree_unflatten([next(rest) if isinstance(x, torch.Tensor) else x for x in flat], spec)
        return op(*args, **kwargs)

    def build() -> Setup:
        return Setup(f, tuple(copies([x for x in flat if isinstance(x, torch.Tensor)])))

    shown = tree_map(lambda x: f"{tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)[:40], flat)
    return Trial(key, (build,), f"# op_db {key}: {', '.join(shown)}")


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Leaf copies with the strides, offsets and shared storages of the originals; one object stays one object."""
    made: dict[int, torch.Tensor] = {}
    storages: dict[int, torch.UntypedStorage] = {}
    result = []
    for t in tensors:
        if id(t) not in made:
            plain = t.detach().resolve_conj().resolve_neg()
            storage = plain.untyped_storage()
            fresh = storages.setdefault(storage._cdata, storage.clone())
            copy = torch.empty(0, dtype=t.dtype, device=t.device)
            copy.set_(fresh, plain.storage_offset(), plain.shape, plain.stride())
            made[id(t)] = copy.requires_grad_(t.requires_grad)
        result.append(made[id(t)])
    return result


def judge_sample(
    program: Trial | str, candidates: Sequence[str], table: Mapping[str, Callable[[], Candidate]] = CANDIDATES
) -> Row:
    """A status and a cause for each of the candidates of a table, or the reason it was skipped.

    `worse` says that the first candidate of two is not right and the second is.
    """
    if isinstance(program, str):
        return {"skipped": program}
    t0 = time.monotonic()
    try:
        expected = expect(program, brief=True)
    except EagerRaised as error:
        return {"skipped": f"eager raises {error.failure.type}"}
    again = judge(program, eager_itself(), expected)
    if again.status != "equal":
        return {"skipped": f"eager differs from eager ({stable(cause(again))})"}
    verdicts = {name: judge(program, table[name](), expected) for name in candidates}
    row: Row = {n: {"status": v.status, "cause": stable(cause(v)), "text": str(v)[:1500]} for n, v in verdicts.items()}
    if len(verdicts) == 2:
        ours, theirs = verdicts.values()
        row["worse"], row["better"] = worse(ours, theirs), worse(theirs, ours)
    return {**row, "ms": round(1000 * (time.monotonic() - t0))}


# --- the walk, in a child process -------------------------------------------------------------------------------------


def walk(options: argparse.Namespace, candidates: list[str]) -> None:
    done = finished(options.out)
    log = Log(options.out)
    if options.retry:
        first = candidates[0]
        done = {k: r for k, r in done.items() if "skipped" in r or r.get(first, {}).get("status") == "equal"}
    until = time.monotonic() + options.seconds if options.seconds else None
    whole = options.samples is None
    for limit in (BREADTH, None) if whole else (options.samples,):  # every op early, then all the rest
        for op in shared(chosen_ops(options.every, options.seed, options.op), options.share):
            name = name_of(op)
            if f"{name} all" in done:
                continue
            if op.name in LEFT_OUT:
                log.add({"key": f"{name}#0", "skipped": LEFT_OUT[op.name]})
                continue
            for key, program in Samples(op, limit, options.device):
                if key in done:
                    continue
                if until and time.monotonic() > until:
                    return
                done[key] = {}
                log.judge(key, partial(judge_sample, program, candidates))
            if whole and limit is None:
                log.add({"key": f"{name} all", "group": True})


def summary(rows: dict[str, dict[str, Any]], candidates: list[str], show: bool) -> int:
    samples = [r for r in rows.values() if not r.get("group")]
    judged = [r for r in samples if candidates[0] in r]
    ops = {r["key"].split("#")[0] for r in samples}
    skipped = Counter(r["skipped"].split(" (")[0][:60] for r in samples if "skipped" in r)
    crashed = [r["key"] for r in samples if r.get("crashed")]
    print(f"{len(ops)} ops, {len(samples)} samples, {len(judged)} judged, {sum(r['ms'] for r in judged) / 1000:.0f} s")
    for reason, k in skipped.most_common():
        print(f"  skipped {k:5}: {reason}")
    for key in crashed:
        print(f"  crashed: {key}")
    print(f"{'':16}{'equal':>8}{'details':>9}{'wrong':>7}{'raised':>8}")
    for name in candidates:
        count = Counter(r[name]["status"] for r in judged)
        print(f"{name:16}{count['equal']:>8}{count['details']:>9}{count['wrong']:>7}{count['raised']:>8}")
    for name in candidates:
        failing = [r for r in judged if r[name]["status"] in ("wrong", "raised")]
        failing_ops = {r["key"].split("#")[0] for r in failing}
        print(f"\n{name}: {len(failing)} samples of {len(failing_ops)} ops fail, by cause:")
        for label, k in Counter(r[name]["cause"] for r in failing).most_common(20):
            example = next(r["key"] for r in failing if r[name]["cause"] == label)
            print(f"  {k:5} {label}  (e.g. {example})")
    parted = [r for r in judged if r.get("worse")]
    if len(candidates) == 2:
        print(f"\nours is right and torch is not: {sum(bool(r.get('better')) for r in judged)} samples")
        print(f"torch is right and ours is not: {len(parted)} samples{' (the goal: none)' if parted else ''}")
        for r in parted:
            print(f"  {r['key']}: {r[candidates[0]]['text'] if show else r[candidates[0]]['cause']}")
    return 1 if parted or crashed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle.sweep_ops", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="progress file (JSON lines); an existing one is gone on with")
    parser.add_argument("--op", default="", help="regex on the op's name")
    parser.add_argument("--every", type=int, default=1, help="one op in so many")
    parser.add_argument("--samples", type=int, help="at most so many samples of an op")
    parser.add_argument("--seed", type=int, default=0, help="which ops --every picks")
    parser.add_argument("--seconds", type=float, help="stop after so long; run again to go on")
    parser.add_argument("--retry", action="store_true", help="judge again what was not equal")
    parser.add_argument("--candidate", help="comma list (default: ours,torch)")
    parser.add_argument("--show", action="store_true", help="print the differences of what fails")
    parser.add_argument("--device", default="cpu", help="where the samples are (cpu)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many share the ops (1)")
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    candidates = (options.candidate or "ours,torch").split(",")
    if options.out is None:
        options.out = Path(tempfile.mkdtemp()) / "sweep.jsonl"
    if options.child:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        walk(options, candidates)
        return 0
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = run_side_by_side("tests.oracle.sweep_ops", [*given, "--out", str(options.out)], options.processes)
    return summary(finished(options.out), candidates, options.show) or code


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # torch logs what it raises
    raise SystemExit(main())
