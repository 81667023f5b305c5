"""How the tests are shared out to several processes (`make test`): a file stays together, but for long tables.

A file's tests share what is dear to set up, such as a built wheel or a browser; all tests of a JupyterLab share that.
The programs, random programs and operators share nothing: they come last and go to whichever process is free, so that
no process ends long before another. Before them come the files, those with most tests first; but the very first are
those that look through all of a process's objects, because they become many: 40 s of one are 20 minutes at the end.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers
from tests.untimed_guards import without_timing_of_guards

# Tests look at what is compiled, and so must their processes. Those of tests/cache/ name a folder.
os.environ["AOTVIZ_CACHE_DIR"] = os.environ.get("AOTVIZ_TESTS_CACHE_DIR", "off")
os.environ.pop("AOTVIZ_CACHE_URL", None)
os.environ["AOTVIZ_VERIFY"] = "1"  # each form after each stage: see aotviz/ir/verify.py
os.environ["AOTVIZ_PROGRESS"] = "0"  # a slow machine would add outputs to notebooks
# Threads that wait for one another's part of a small operator spin, and take the core on which others work: as much as
# the test itself takes. As many threads as ever, but they sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Each process that compiles C++ asks five others whether the processor has what the compiler has: a second, and more.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
if "CXX" not in os.environ and shutil.which("g++") and shutil.which("sha256sum"):
    made = tempfile.TemporaryDirectory(prefix="aotviz-compiled-")  # for this process and those that it starts
    os.environ |= {"CXX": str(Path(__file__).parent / "compilers" / "g++"), "AOTVIZ_TESTS_COMPILED": made.name}

SHARE = os.environ.get("AOTVIZ_TESTS_SHARE", "")  # of those that take long: see tests/tiers.py
SERVERS = {"lab", "notebook_7", "served"}  # fixtures: a JupyterLab, a Notebook 7, one after the other
FILE = pytest.StashKey[Path]()  # of the test that runs
FIRST = ["test_leaks.py", "test_benchmarks.py", "test_one_way_in.py", "test_wrapper.py"]
SPREAD = {
    "test_aliased_inputs.py",
    "test_corrections.py",
    "test_found_programs.py",
    "test_fuzz.py",
    "test_hard_cases.py",
    "test_input_attributes.py",
    "test_modules.py",
    "test_oracle.py",
    "test_programs.py",
    "test_sweep_ops.py",
}


# Note [Frozen objects]: what 14,000 tests, and the files that have been run, hold are millions of objects. To look
# through them takes seconds, and frees nothing. So what is there when a file begins is set apart from `gc.collect()`,
# and the collector itself looks through the others rarely, that is after 50 compilations. `gc.get_referrers` sees all,
# and what it, or a benchmark, has thawed is set apart again before the next test.
gc.set_threshold(100_000, 20, 5)
get_referrers, unfreeze = gc.get_referrers, gc.unfreeze
frozen = SimpleNamespace(thawed=False, again=False)  # `gc.get_freeze_count` would walk through them


def thaw() -> None:
    frozen.thawed = True
    unfreeze()


def get_referrers_among_all(*objects: object) -> list[Any]:
    thaw()
    return [one for one in get_referrers(*objects) if one is not objects]  # Python 3.13 counts it


gc.get_referrers, gc.unfreeze = get_referrers_among_all, thaw


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: to look through it for garbage again and again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own hook, once
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = Counter[tuple[Any, str]]()
    for item in items:
        table = item.get_closest_marker("every")
        if table is not None:
            row = (item.path, item.originalname)  # type: ignore[attr-defined]
            if rows[row] % table.args[0]:
                item.add_marker(pytest.mark.slow)
            rows[row] += 1
        if item.path.name not in SPREAD:
            uses_server = isinstance(item, pytest.Function) and SERVERS & {*item.fixturenames}
            item.add_marker(pytest.mark.xdist_group("servers" if uses_server else item.path.name))
        if item.originalname.startswith("test_golden_of") and is_of_another_size(item):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)
    long = tiers.long_tests()
    left_out = {item for item in items if takes_long(item, long) and not tiers.is_in(SHARE, item.nodeid)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    sizes = Counter(item.path for item in items)
    place = {name: number for number, name in enumerate(FIRST)}
    last = "test_what_is_loaded.py"  # of the files: each audit event after it is a call of a Python function
    items.sort(
        key=lambda item: (
            item.path.name in SPREAD,
            item.path.name == last,
            place.get(item.path.name, len(place)),
            -sizes[item.path],
        )
    )


def takes_long(item: pytest.Item, long: frozenset[str]) -> bool:
    function = f"{item.location[0]}::{item.originalname}"  # type: ignore[attr-defined]
    return item.get_closest_marker("slow") is not None or function in long


def is_of_another_size(golden: pytest.Function) -> bool:
    """Whether it is a picture in dark colours or of another width than the first."""
    parameters = golden.callspec.params
    return "width" in parameters or parameters.get("theme") == "dark"


def pytest_runtest_setup(item: pytest.Item) -> None:
    begins = item.path != item.config.stash.get(FILE, None)
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and (begins or counts_by_code()):
        dynamo.reset()  # else it still holds the programs of the last file, or a table makes too many of one code
    if begins:  # see Note [Frozen objects]
        item.config.stash[FILE] = item.path
        if frozen.again:
            unfreeze()  # among it may be garbage
        gc.collect()
        gc.freeze()
        frozen.thawed = frozen.again = False
    elif frozen.thawed:
        gc.freeze()
        frozen.thawed, frozen.again = False, True
    without_timing_of_guards()


@functools.cache
def counts_by_code() -> bool:
    """Whether Dynamo counts recompiles by the code of a function, not for each compiled function."""
    from aotviz.torch_private import versions

    return not versions.has("recompiles are counted by each compiled function")


@pytest.fixture
def clean_dynamo() -> Iterator[None]:
    """A test from a Dynamo that knows no program, with a seed, which leaves none of its programs behind."""
    import torch  # most tests that read recordings do without

    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
