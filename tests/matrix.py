"""`make matrix`: the quick tests and random programs on each release of torch and each Python that is supported.

    python -m tests.matrix                     # all pairs, one after the other; those with figures are left out
    python -m tests.matrix 2.14.1-3.11 --again  # this pair, again
    python -m tests.matrix 2.14.1-3.11 --mended  # of this pair the tests that had failed, if any, and the programs
    python -m tests.matrix 2.13.0-3.13 --quick  # of the tests, those of `make test`
    python -m tests.matrix 2.15.0-3.11 --files tests/test_rng.py  # these files; their figures join those of others
    python -m tests.matrix --page              # docs/releases.md from the stored figures

Each pair has an environment of its own, of several GB, which is removed when its figures are stored. A run that is
stopped goes on where it was: with the environment, and with the programs that are not yet judged. What a pair did not
do is kept as well: the names of its failed tests, and the programs on which that torch alone is right.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as tree
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.oracle.fuzz_report import COLUMNS, entry_of
from tests.oracle.progress import Row, finished
from tests.tiers import node

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests" / "matrix.json"
PAGE = ROOT / "docs" / "releases.md"
WORK = ROOT / ".matrix"
PAIRS = ("2.11.0-3.11", "2.13.0-3.11", "2.14.1-3.11", "2.15.0-3.11", "2.14.1-3.12", "2.13.0-3.13")
PROGRAMS = 1000
GROUP = re.compile(r"@[\w.]+$")  # that pytest-xdist puts behind a test's name
CANDIDATES = ("ours", "ours-backend", "torch")

HEAD = """\
# Releases of torch

What was run on each release of torch and each Python: tests, and random programs, by
`aotviz.aot_function` and `torch.compile(backend="aotviz_eager")` beside the same by torch of that release. A program
is right if it equals eager; "only torch" counts those that torch has right and aotviz has not. Below the table are the
tests that failed, if there are any. After a mend, only those that had failed ran again. Tests: "all", but for sweeps
and most rows of long tables; "quick", those of `make test`; or the number of the files that were run, whose names are
in `tests/matrix.json`. "Minutes" is what the tests took, on two cores.

`make matrix` runs what has no figures yet, and writes this page; `make test TORCH=2.14.1` runs the tests alone. What a
release lacks is in one table, `aotviz/torch_private/versions.py`, and tests that need it are skipped.

```text
$ make matrix ARGS="2.14.1-3.11 --again"
== torch 2.14.1, Python 3.11
```

On torch 2.12.0 with Python 3.12 the wheel was installed and ran the demo, and seven files of tests passed (950
tests; 22 skipped by name).

| torch | Python | tests | passed | failed | skipped | minutes | programs | {candidates} | only torch |
| --- | --- | --- | --- | --- | --- | --- | --- |{columns} --- |
"""

NEWS = """
## What is new in torch 2.14 and 2.15

What differs for AOTAutograd and for what surrounds it: what aotviz's tests met on these releases, and what differs in
torch's sources (2.13.0, 2.14.1 and 2.15.0): the files of its AOTAutograd, the fields of its metadata, its settings,
higher-order operators and records of TORCH_TRACE. Numbers are pull requests of torch.

| since | what is new | in aotviz |
| --- | --- | --- |
| 2.14 | opaque types are symbolic; the old question, `is_opaque_reference_type`, warns at each compilation | done: \
aotviz asks by the new name |
| 2.14 | the tracing flag is per thread; `_is_fx_tracing_flag` is gone | done, in `torch_private/tracers.py` |
| 2.14 | an attribute that apply lacks is read: after a graph break, `jacfwd(Function.apply)` raises AttributeError in \
the code that Dynamo makes | done: aotviz's backends have a result |
| 2.14 | an operator that fails in a trace raises in the program, which may catch it; if not, Dynamo fails at the \
frame | done: for aotviz's backends the graph breaks there, as before |
| 2.14 | a Hessian under vmap is traced, at which Dynamo failed | done: nothing runs in eager there |
| 2.14 | a float that is only returned is no part of a graph: one program serves all its values | nothing to do |
| 2.14 | a logarithm of a symbolic float is traced, as for the gradient of `2.0**x` with a changing base | nothing \
to do |
| 2.14 | an object is a key of a dictionary without a graph break | nothing to do |
| 2.14 | a dropout that drops nothing returns its input, as in eager; torch's trace made a copy | nothing to do |
| 2.14 | an export of gradients is traced once more; `to` asserts what it is given | aotviz traces once; the tests \
compare by meaning |
| 2.15 | an input that grows is taken for a view | done: such a program is refused, with the reason "view is resized" |
| 2.15 | a scatter by as_strided wants a contiguous input, if it requires grad: torch fails at a write through \
`as_strided` of another | refused by name, with the reason "as_strided in a chain of views" |
| 2.15 | a write by as_strided may be outside of the argument | done: it is no longer refused |
| 2.15 | a trace has fewer nodes that compute sizes | nothing to do: such nodes have other names |
| 2.15 | a gradient of an intermediate is traced | nothing runs in eager there |
| 2.15 | a view outside of its storage fails in a trace | it was refused before |
| 2.15 | a metadata op compares the bytes of its storage with what it needs, also where they are symbolic | done: the \
comparison is no part of the graph |
| 2.14 | attention on a CPU is recomputed without a state of the random numbers | nothing to do |
| 2.14 | Inductor asserts sizes, strides and dtype of a result at once (`assert_tensor_metadata`) | done: \
planned memory reads it |
| 2.15 | an export without Dynamo has a compile id in TORCH_TRACE, and its records have no stacks | done: it is read \
as an export |
| 2.15 | an export is traced once more, so its nodes have another order | aotviz traces once; the tests compare by \
meaning |
| 2.14 | two higher-order operators, in `switch.py` and `flex_gemm.py` | done: torch's samples of them equal eager by \
both doors, and with the backward captured |
| 2.14 | fields of the metadata: `mutation_is_shallow_copy_data`, `outer_size_from_attr`, `act_input_paths`, \
`saved_tensor_is_graph_input` | nothing to do: aotviz has metadata of its own; `x.data = y` is as in eager by \
`torch.compile` |
| 2.14 | records of TORCH_TRACE: `compile_worker_status`, `compile_worker_sidecar_death`, `flex_gemm_*` | done: \
they are known |
| 2.15 | settings: `activation_memory_budget_require_full_coverage`, `_sync_cache_decision_cross_ranks` | nothing to \
do: torch's partitioner, which aotviz calls, reads the first; the second is of torch's own cache |
| 2.14 | `torch.compiler.precompile` captures a step ahead of time and returns Python and a cache of kernels (187258), \
with torch's own Inductor or eager lowering only | done: a log of such a job has one entry, "precompile", with all its \
stages; a function that aotviz compiles goes into a file by `aot_compile`, or as Python by `to_python` |
| 2.14 | `compile_to_python` joins the sources of AOTAutograd's run-time wrappers to one module, in \
`to_standalone_python.py`, `source_emit.py` and `standalone_runtime.py` (187859); with a backward (195361, open) | \
done, with the backward, under each release: `compiled.to_python()` is one file with the graphs, the wrapper and \
example inputs (docs/compiling.md, "A file of its own") |
| 2.14 | the sources of generated wrappers can be collected while a program is compiled, in `codegen.py` (187258) | \
done otherwise: `compiled.source` has the wrapper, the recording each program's, and `to_python` a module |
| not known | a program with streams of its own and with gradients no longer fails in the partitioner (187695); waits \
of the CPU for a stream become barriers across streams (189096) | done, with a pass of aotviz's own: each event and \
wait is a barrier for all that is computed before it, and happens once; tested with stand-ins for streams, not on a \
GPU |

Not new, though it is told of newer releases: `complex_decomposition.py` and the setting `enable_complex_wrapper`, which
the documentation calls experimental as of 2.14, are in 2.13. aotviz traces complex tensors as they are, and warns of
the setting. `nested_compile_region` takes `options` since 2.12; a region's own partitioner is used. 2.13 has
`torch.autograd.graph.region_activation_memory_budget`: the same tensors are saved as by torch.
"""


@dataclass(frozen=True)
class Figures:
    """Of one pair. `programs` has candidate -> standing (tests/oracle/fuzz_report.py) -> number of programs."""

    pair: str
    commit: str
    passed: int
    skipped: int
    failed: list[str]
    programs: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, list[int]] = field(default_factory=dict)  # file -> passed, skipped; empty if all of them were run
    only_torch: list[str] = field(default_factory=list)
    quick: bool = False  # the tests were those of `make test`
    seconds: int = 0  # that the tests took, with two processes; 0 if it is not known

    @property
    def torch(self) -> str:
        return self.pair.partition("-")[0]

    @property
    def python(self) -> str:
        return self.pair.partition("-")[2]


def stored() -> dict[str, Figures]:
    """The figures by pair, in the order of `PAIRS`."""
    found = json.loads(STORED.read_text()) if STORED.exists() else []
    by_pair = {row["pair"]: Figures(**row) for row in found}
    return {pair: by_pair[pair] for pair in PAIRS if pair in by_pair}


def store(figures: Figures) -> None:
    known = {**stored(), figures.pair: figures}
    rows = [asdict(known[pair]) for pair in PAIRS if pair in known]
    STORED.write_text(json.dumps(rows, indent=1) + "\n")


def run(
    pair: str, jobs: int, programs: int, before: Figures | None, files: Sequence[str] = (), quick: bool = False
) -> Figures:
    """Make the pair's environment if it is not there, and run everything in it; of the tests, only those in `files`,
    or only those that had failed if there are none and the figures from `before` are given, or only the quick ones."""
    release, _, version = pair.partition("-")
    folder, work = ROOT / f".venv-matrix-{pair}", WORK / pair
    work.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"AOTVIZ_TESTS_SHARE": "none"} if quick else {})
    making = ["make", f"VENV={folder.name}", f"PYTHON={_python(version)}", f"TORCH={release}"]
    subprocess.run([*making, f"{folder.name}/.ready"], cwd=ROOT, env=environment, check=True)
    python = str(folder / "bin" / "python")
    report = work / ("files.xml" if files else "mended.xml" if before else "junit.xml")
    rows = work / "programs.jsonl"
    mended = [node(name) for name in before.failed] if before and not files else []
    if before and not files and not mended:
        report.write_text("<testsuites/>")
    elif files or not report.exists():
        chosen = mended or ["-m", "not slow", *files]
        testing = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(jobs), "--dist", "loadgroup", *chosen]
        subprocess.run([python, *testing, f"--junitxml={report}"], cwd=ROOT, env=environment, check=False)
    fuzzing = ["-m", "tests.oracle.fuzz", "--n", str(programs), "--modes", "--seed", "38", "--json", str(rows)]
    if programs:
        subprocess.run([python, *fuzzing, "--candidate", ",".join(CANDIDATES)], cwd=ROOT, env=environment, check=False)
    passed, skipped, failed = outcomes(report.read_text())
    judged = list(finished(rows).values()) if programs else []
    counts, seconds = tallies(judged), lasted(report.read_text())
    found = Figures(
        pair, _commit(), passed, skipped, failed, counts, only_torch=_parted(judged), quick=quick, seconds=seconds
    )
    if files:
        return joined(before, found, report.read_text(), files)
    if before:
        counts = {"passed": before.passed + passed, "skipped": before.skipped + skipped}
        found = replace(found, **counts, files=before.files, quick=before.quick, seconds=before.seconds)
    return found


def joined(before: Figures | None, found: Figures, report: str, files: Sequence[str]) -> Figures:
    """What was found in some files, with what is known of the others."""
    counted = {**(before.files if before else {}), **{file: [*outcomes(report, file)[:2]] for file in files}}
    passed, skipped = (sum(counts) for counts in zip(*counted.values(), strict=True))
    others = [name for name in (before.failed if before else []) if node(name).partition("::")[0] not in files]
    files_in_order = dict(sorted(counted.items()))
    failed = sorted([*others, *found.failed])
    return replace(found, passed=passed, skipped=skipped, failed=failed, files=files_in_order, seconds=0)


def outcomes(report: str, file: str = "") -> tuple[int, int, list[str]]:
    """How many tests passed and were skipped, and the names of those that failed, from pytest's JUnit report; only of
    `file` if it is given."""
    passed, skipped, failed = 0, 0, []
    for case in tree.fromstring(report).iter("testcase"):
        if file and node(f"{case.get('classname', '')}::").partition("::")[0] != file:
            continue
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('classname', '')}::{GROUP.sub('', case.get('name', ''))}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, sorted(failed)


def lasted(report: str) -> int:
    """How many seconds the tests took, by pytest's JUnit report."""
    return round(sum(float(suite.get("time", 0)) for suite in tree.fromstring(report).iter("testsuite")))


def tallies(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Candidate -> standing -> number of programs, in the order of `COLUMNS`."""
    found = {name: Counter(entry_of(row, name)["standing"] for row in rows) for name in CANDIDATES}
    return {name: {column: found[name][column] for column in COLUMNS if found[name][column]} for name in CANDIDATES}


def page(known: dict[str, Figures]) -> str:
    """The text of docs/releases.md."""
    head = HEAD.format(
        candidates=" | ".join(f"`{name}`" for name in CANDIDATES),
        columns=" --- |" * len(CANDIDATES),
    )
    rows = []
    for one in known.values():
        right = [_right(one.programs.get(name, {})) for name in CANDIDATES]
        cells = [
            one.torch,
            one.python,
            str(len(one.files) or ("quick" if one.quick else "all")),
            f"{one.passed:,}",
            str(len(one.failed)),
            str(one.skipped),
            f"{one.seconds / 60:.0f}" if one.seconds else "",
            str(sum(one.programs.get(CANDIDATES[0], {}).values())),
            *right,
            str(len(one.only_torch)),
        ]
        rows.append(f"| {' | '.join(cells)} |\n")
    failed = [
        f"\n## Failed with torch {f.torch}, Python {f.python}\n\n{_listed(f.failed)}"
        for f in known.values()
        if f.failed
    ]
    return head + "".join(rows) + NEWS + "".join(failed)


def _listed(names: Sequence[str]) -> str:
    """The failed tests by file, with their numbers; the names are in tests/matrix.json."""
    files = Counter(name.partition("::")[0] for name in names)
    return "".join(f"- `{file.replace('.', '/')}.py`: {count}\n" for file, count in sorted(files.items()))


def _right(tally: dict[str, int]) -> str:
    judged = sum(tally.values()) - tally.get("dynamo's own", 0)
    return f"{100 * (tally.get('equal', 0) + tally.get('details', 0)) / judged:.1f} %" if judged else ""


def _parted(rows: Sequence[Row]) -> list[str]:
    return sorted(str(row["key"]) for row in rows if row.get("parted"))


def _python(version: str) -> str:
    """The command of a Python, "3.12"."""
    found = shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"matrix: there is no python{version} on PATH")
    return found


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tests.matrix", description="Tests and random programs on each release of torch."
    )
    parser.add_argument("pair", nargs="*", help=f"RELEASE-PYTHON; all of them if none: {' '.join(PAIRS)}")
    parser.add_argument("--again", action="store_true", help="also those that have figures")
    parser.add_argument("--mended", action="store_true", help="of the tests, only those that had failed")
    parser.add_argument("--page", action="store_true", help="write docs/releases.md, and run nothing")
    parser.add_argument("--keep", action="store_true", help="leave the environments")
    parser.add_argument("--files", nargs="+", default=(), help="only these files of tests")
    parser.add_argument("--quick", action="store_true", help="of the tests, only those of `make test`")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests (default: 2)")
    parser.add_argument(
        "--programs",
        type=int,
        default=PROGRAMS,
        help=f"random programs (default: {PROGRAMS}); with 0 the stored figures of them stay",
    )
    options = parser.parse_args()
    if unknown := [pair for pair in options.pair if pair not in PAIRS]:
        parser.error(f"no pair {unknown[0]!r}; there are {', '.join(PAIRS)}")
    known = stored()
    for pair in () if options.page else options.pair or PAIRS:
        chosen = options.again or options.mended or options.files
        if pair in known and not known[pair].files and not chosen:
            continue
        if options.files and pair in known and not known[pair].files:
            parser.error(f"{pair} has figures of all files: --again or --mended")
        print(f"== torch {pair.replace('-', ', Python ')}", flush=True)
        before = known.get(pair) if options.mended or options.files else None
        found = run(pair, options.jobs, options.programs, before, options.files, options.quick)
        if not options.programs and pair in known:
            found = replace(found, programs=known[pair].programs, only_torch=known[pair].only_torch)
        store(found)
        (WORK / pair / "mended.xml").unlink(missing_ok=True)  # its tests are counted
        if not options.keep:
            shutil.rmtree(ROOT / f".venv-matrix-{pair}")
            shutil.rmtree(WORK / pair)
    PAGE.write_text(page(stored()))


if __name__ == "__main__":
    sys.exit(main())
