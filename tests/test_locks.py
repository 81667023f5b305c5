"""Dynamo traces no code of aotviz, and no lock is held while code of others runs (Note [Locks] in pipeline.py)."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._dynamo import trace_rules

from aotviz.torch_private import untraced

PACKAGE = Path(__file__).resolve().parents[1] / "aotviz"
KINDS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}

LOCKS = {  # "file: what holds it" -> what is done under it
    "cache/database.py: self.lock": "SQLite reads and writes; the owner of the cache says more",
    "cache/database.py: _held.pop().lock": "replaces the locks of a forked child",
    "cache/database.py: _forking": "keeps the process from forking while a database is opened",
    "frontends/backwards.py: _lock": "a dictionary is changed",
    "ir/dynamo_capture.py: self._lock": "a tuple is replaced",
    "live/structured_trace.py: _lock": "the logger's handlers, and the tuple of receivers, are replaced",
    "live/watched.py: self._lock": "lines are added, dropped, joined; resets are counted",
    "logs/log_files.py: self._lock": "bytes are read from a file",
    "logs/texts.py: self._lock": "a text is added to a table",
    "pipeline.py: lock": "the exception: a compilation",
    "recorder/recorder.py: self.lock": "forms are read; listeners and warnings wait until it is released",
    "recorder/sessions.py: _lock": "a tuple is replaced",
    "recording/progress.py: _lock, _thread": "a tuple or a weak set is changed or read",
    "recording/progress_line.py: self._lock": "numbers and a dictionary are changed",
    "recording/progress_line.py: self._stop": "a flag",
    "recording/progress_line.py: self._writing": "the line is written; nobody waits for it for more than a second",
    "recording/store.py: self._lock": "plain data is replaced",
    "recording/store.py: self._merging": "what came from the cache is unpacked",
    "runtime/deferred_stages.py: lock": "a backward is compiled, and no call waits: its graph runs as it is meanwhile",
    "runtime/partial_backward.py: self._lock": "graphs of ours are made",
    "whole_backward/compiled_parts.py: self._lock": "a part is compiled, and nobody waits: its operators run",
    "whole_backward/engine.py: self._changed": "two numbers are changed",
    "whole_backward/engine.py: _installed, _count": "torch's function is replaced by ours, or put back",
}


def locks_of(path: Path) -> Iterator[str]:
    """What each lock that is made in a file is bound to."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        made = [
            one for one in ast.walk(node.value) if isinstance(one, ast.Attribute | ast.Name) and name_of(one) in KINDS
        ]
        if made:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield ", ".join(ast.unparse(target).strip("()") for target in targets)


def name_of(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def test_each_lock_of_the_package_has_a_reason() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {lock}" for path in PACKAGE.rglob("*.py") for lock in locks_of(path)
    }
    assert found == set(LOCKS), "see Note [Locks] in pipeline.py, then add the lock to the list here"


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def is_skipped(code: types.CodeType) -> bool:
    """Whether Dynamo skips it, both where a frame of it begins and where traced code calls it."""
    return all(trace_rules.check(code, is_inlined_call=inlined) for inlined in (False, True))


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_dynamo_skips_every_code_object_of_the_package_but_the_code_that_is_there_to_be_traced() -> None:
    traced = set()
    for path in SOURCES:
        for code in code_objects(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
            # Inside of a traced function, Dynamo inlines these by their name. No traced function can hold ours.
            if code.co_name not in ("__torch_function__", "<listcomp>") and not is_skipped(code):
                traced.add(path.name)
    assert traced == {untraced.TRACED}


@pytest.mark.parametrize("order", ["import aotviz, torch._dynamo", "import torch._dynamo, aotviz"])
def test_dynamo_is_kept_out_in_whatever_order_both_are_imported(order: str) -> None:
    run(f"""
        {order}
        import aotviz.recording.progress as ours
        from torch._dynamo import trace_rules
        assert trace_rules.check(ours.begun.__code__)
        assert trace_rules.check(compile("1", "<aotviz 1 f>", "eval"))
    """)


def run(program: str) -> str:
    """Run it in a process of its own, which ends with every thread's stack if it hangs."""
    lines = program.splitlines()
    text = "import faulthandler\nfaulthandler.dump_traceback_later(80, exit=True)\n" + "\n".join(
        line[8:] for line in lines
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_no_frame_of_ours_is_compiled_while_dynamo_looks_at_every_frame() -> None:
    """The backward breaks the graph, so that Dynamo looks at the frames of the watch, the recorder and the hooks."""
    run("""
        import logging, os, torch, aotviz
        import torch._dynamo.config as config
        from torch._dynamo import convert_frame
        config.compiled_autograd = True
        seen, compile_ = [], convert_frame._compile
        def listing(code, *args, **kwargs):
            seen.append(code.co_filename)
            return compile_(code, *args, **kwargs)
        convert_frame._compile = listing
        layer = torch.nn.Linear(4, 4)
        ours = aotviz.compile(lambda x: layer(x).sin(), backend="eager")
        heard = []
        layer.weight.register_hook(lambda g: heard.append(len(recording.compilations)))
        def step(x):
            (layer(x).sum() + ours(x).sum()).backward()
        with aotviz.watch() as recording, aotviz.record():
            torch.compile(step, backend="aot_eager")(torch.ones(2, 4))
        assert layer.weight.grad is not None and heard and seen
        package = os.path.dirname(aotviz.__file__)
        traced = [one for one in seen if one.startswith((package, "<aotviz"))]
        assert not [one for one in traced if not one.endswith("traced.py")], traced
    """)


@pytest.mark.slow
def test_threads_that_compile_log_look_and_free_come_to_an_end() -> None:
    """Log records arrive in a watch while a handler compiles, a view reads, and the collector frees what logs."""
    run('''
        import gc, logging, threading
        import torch, aotviz

        torch.set_num_threads(1)
        own = logging.getLogger("stress")
        own.propagate = False


        class Noisy:
            """A cycle, so that it is freed by the collector, wherever that runs, and logs."""

            def __init__(self):
                self.me = self

            def __del__(self):
                own.warning("freed")


        class Compiles(logging.Handler):
            """A handler that reads a recording, and once compiles."""

            done = False

            def emit(self, record):
                str(watched)
                if not Compiles.done:
                    Compiles.done = True
                    aotviz.compile(lambda x: x.tan() + 1, backend="eager", cache=False)(torch.ones(2))


        own.addHandler(Compiles())
        gc.set_threshold(50)
        failed = []


        def step(number, backend):
            try:
                for size in range(2, 5):
                    weight = torch.ones(size, requires_grad=True)
                    made = [Noisy() for _ in range(20)]
                    fn = torch.compile(lambda x: (x * weight * number).sin().sum() + len(made), backend=backend)
                    fn(torch.ones(size)).backward()
            except BaseException as error:
                failed.append(error)


        def look(stop):
            while not stop.is_set():
                str(watched), str(watched.explain()), len(recording)


        torch.compile(lambda x: x + 1, backend="aotviz_eager")(torch.ones(2))  # which registers it
        with aotviz.watch() as watched, aotviz.record() as recording:
            stop = threading.Event()
            viewer = threading.Thread(target=look, args=(stop,))
            backends = ["aot_eager", "aotviz_eager"] * 2
            threads = [threading.Thread(target=step, args=pair) for pair in enumerate(backends, 1)]
            for thread in (viewer, *threads):
                thread.start()
            for thread in threads:
                thread.join()
            with aotviz.compiled_autograd(backend="eager"):
                step(9, "aot_eager")
            stop.set()
            viewer.join()
        assert Compiles.done and not failed and len(recording), failed
    ''')
