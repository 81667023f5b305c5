"""With `torch._dynamo.config.caching_precompile`, a second process neither traces a function nor compiles its graphs.

Every process compares every result with eager.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cache import kept_by_dynamo
from tests.processes import run_script, start, wait

pytestmark = pytest.mark.slow
Found = dict[str, dict[str, Any]]
CASES = tuple(kept_by_dynamo.CASES)


def ran(folder: Path, *cases: str, setup: str = "", **options: Any) -> Found:
    """What a new process finds. It runs `setup` first, and saves what Dynamo keeps in the end."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    process = start(kept_by_dynamo.run, str(folder), str(answer), list(cases), setup, **options)
    assert wait(process) == 0
    found: Found = json.loads(answer.read_text())
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found, Found]:
    """A folder, and what the first and the second process found."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, *(ran(folder, *CASES) for _ in range(2))


@pytest.mark.parametrize("case", CASES)
def test_second_process_traces_and_compiles_nothing(kept: tuple[Path, Found, Found], case: str) -> None:
    _, first, second = kept
    assert first[case]["captured"] > 0
    assert second[case]["captured"] == 0
    assert set(second[case]["outcomes"]) == {"hit"} or case == "float"  # its range is not kept
    names = [[name.partition(" ")[0] for name in found[case]["names"]] for found in (first, second)]
    assert names[0] == names[1]


def test_recording_says_what_dynamo_keeps_and_what_comes_from_there(kept: tuple[Path, Found, Found]) -> None:
    _, first, second = kept
    (told,) = first["gradients"]["kept"]
    assert told.startswith("the next process does not trace the function")
    (told,) = second["gradients"]["kept"]
    assert told.startswith("Dynamo traced nothing here")
    assert "`train` captured by an earlier process: 9 nodes" in second["gradients"]["text"]
    assert "replayed: 1 mutated input" in second["gradients"]["text"]


def test_rest_of_the_program_is_compiled_if_our_cache_was_emptied(kept: tuple[Path, Found, Found]) -> None:
    """And with an option that the first process did not set: the graph is kept, and not what was made of it."""
    folder, *_ = kept
    emptied = "import os; os.environ['AOTVIZ_CACHE_DIR'] = os.environ['AOTVIZ_CACHE_DIR'] + ' other'"
    found = ran(folder, *CASES, setup=emptied, backend="aotviz.compile")
    assert [found[case]["captured"] for case in CASES] == [0] * len(CASES)
    assert found["gradients"]["outcomes"] == ["miss"]
    checked = ran(folder, *CASES, backend="aotviz.compile", debug=True)
    assert [checked[case]["captured"] for case in CASES] == [0] * len(CASES)


def test_another_backend_does_not_run_what_aotviz_kept(tmp_path: Path) -> None:
    ran(tmp_path, "gradients")
    found = ran(tmp_path, "gradients", backend="aot_eager")
    assert found["gradients"]["captured"] == 1


def test_aotviz_does_not_run_what_another_backend_kept(tmp_path: Path) -> None:
    assert ran(tmp_path, "gradients", backend="inductor")["gradients"]["captured"] == 1
    found = ran(tmp_path, "gradients", backend="aotviz.compile")["gradients"]
    assert (found["captured"], found["outcomes"]) == (1, ["miss"])
    assert "another backend compiled" in " ".join(found["warnings"])


def test_another_version_of_aotviz_traces_again(tmp_path: Path) -> None:
    ran(tmp_path, "gradients")
    other = "from aotviz.cache import captured_graphs; captured_graphs.version = lambda: 'another'"
    assert ran(tmp_path, "gradients", setup=other)["gradients"]["captured"] == 1


def test_call_that_fails_the_kept_guards_is_traced(tmp_path: Path) -> None:
    first, second = ran(tmp_path, "graph break"), ran(tmp_path, "graph break in double precision", "graph break")
    assert first["graph break"]["captured"] == 2
    assert second["graph break in double precision"]["captured"] == 2
    assert second["graph break"]["captured"] == 0


def test_graph_with_symbols_is_kept_too(tmp_path: Path) -> None:
    first, second = (ran(tmp_path, "sizes") for _ in range(2))
    assert (first["sizes"]["captured"], second["sizes"]["captured"]) == (2, 0)
    assert set(second["sizes"]["outcomes"]) == {"hit"}


def test_graph_that_cannot_be_kept_is_traced_again_with_a_reason(tmp_path: Path) -> None:
    first, second = (ran(tmp_path, "user's function") for _ in range(2))
    (told,) = first["user's function"]["kept"]
    assert told.startswith("Dynamo will trace the function in the next process too, although caching_precompile is set")
    assert "cannot be stored" in told
    assert second["user's function"]["captured"] == 1


def test_example_of_the_page_runs_twice(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cache.md").read_text(encoding="utf-8")
    (example,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "caching_precompile" in block
    ]
    script = tmp_path / "train.py"
    folders = [
        f"os.environ['{name}'] = {str(tmp_path / name)!r}" for name in ("TORCHINDUCTOR_CACHE_DIR", "AOTVIZ_CACHE_DIR")
    ]
    script.write_text("\n".join(["import os", *folders, example]))
    first, second = (run_script(script, cwd=tmp_path) for _ in range(2))
    assert "`step` captured: " in first.stdout
    assert "`step` captured by an earlier process: " in second.stdout
