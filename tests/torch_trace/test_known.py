"""Every record type that the installed torch can write is known, by its calls and not by what a run happened to do."""

from __future__ import annotations

import ast
import fnmatch
import re
from pathlib import Path

import pytest
import torch

from aotviz.logs import known
from aotviz.logs.known import is_known

ROOT = Path(torch.__file__).parent
CALLS = {"trace_structured": 0, "dtrace_structured": 0, "trace_structured_artifact": 0}

# Calls whose name is a variable, and what it is there; (file, the variable).
BY_VARIABLE = {
    ("_dynamo/utils.py", "name"): ["compilation_metrics", "bwd_compilation_metrics_runtime", "bwd_compilation_metrics"],
    ("_logging/_internal.py", "name"): [],  # hands on what its callers say
    ("_functorch/_aot_autograd/subclass_codegen.py", "artifact_name"): None,  # read off the callers, below
    ("_functorch/_aot_autograd/codegen.py", "artifact_name"): None,
    ("_functorch/_aot_autograd/codegen.py", "_RUNTIME_WRAPPERS_ARTIFACT_NAME"): [
        "artifact/aot_autograd_runtime_wrappers"
    ],
    ("_functorch/_aot_autograd/aot_autograd_result.py", "name"): ["aot_forward_graph", "aot_inference_graph"],
    ("_native/instrumentation.py", "_ARTIFACT_NAME"): ["artifact/native_dsl_compile"],
    ("_inductor/comms_debug.py", "tname"): ["artifact/sink_waits_ITERATIVE_RECOMPUTE_ERROR"],
    ("_inductor/fx_passes/group_batch_fusion.py", "name"): ["artifact/optimus_BatchLinear", "artifact/cff_BatchMTIA"],
    ("_inductor/fx_passes/node_runtime_estimation.py", "artifact_name"): [
        "artifact/fx_collectives_analytical_runtime_estimation"
    ],
    ("_inductor/memory.py", "name"): ["artifact/model__0_forward_1_fused"],
    ("_dynamo/pgo.py", "event_name"): ["artifact/put_remote_code_state"],
}


Written = list[tuple[str, str, ast.expr]]


@pytest.fixture(scope="module")
def written() -> Written:
    """(file, "" or "artifact", name) of each call that writes a record."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "trace_structured" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name not in CALLS:
                continue
            first = node.args[0] if node.args else next(k.value for k in node.keywords if k.arg == "name")
            kind = "artifact" if name == "trace_structured_artifact" else ""
            if isinstance(first, ast.Constant) and first.value == "artifact" and not kind:
                kind, first = "artifact", name_in_metadata(node)
            found.append((path.relative_to(ROOT).as_posix(), kind, first))
    return found


def name_in_metadata(call: ast.Call) -> ast.expr:
    for node in ast.walk(call):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "name":
                    return value
    raise AssertionError(f"an artifact without a name: {ast.unparse(call)}")


def possible(name: ast.expr, file: str) -> list[str]:
    """The names that an expression may have; a part of a text that changes is a word."""
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    if isinstance(name, ast.IfExp):
        return possible(name.body, file) + possible(name.orelse, file)
    if isinstance(name, ast.BinOp):
        return [a + b for a in possible(name.left, file) for b in possible(name.right, file)]
    if isinstance(name, ast.JoinedStr):
        words = {"cache_state": ["hit", "miss", "bypass"], "structured_log_prefix_fn()": ["aot_joint_graph"]}
        texts = [""]
        for part in name.values:
            options = [part.value] if isinstance(part, ast.Constant) else words.get(ast.unparse(part.value), ["word"])
            texts = [text + str(option) for text in texts for option in options]
        return texts
    return ["word"]


@pytest.mark.slow
def test_every_type_that_torch_writes_is_known(written: Written) -> None:
    unknown = []
    for file, kind, name in written:
        if isinstance(name, ast.Name):
            labels = BY_VARIABLE.get((file, name.id), [f"?{file}:{name.lineno} {name.id}"])
        else:
            labels = [f"{kind}/{text}" if kind else text for text in possible(name, file)]
        unknown += [f"{label} ({file}:{name.lineno})" for label in labels or () if not is_known(label)]
    assert not unknown


@pytest.mark.slow
def test_the_search_finds_the_calls(written: Written) -> None:
    """Torch 2.11 and later have more than a hundred; if this finds fewer, the test above claims little."""
    assert len(written) > 100


def test_every_wrapper_that_torch_generates_is_known() -> None:
    names = set()
    for path in (ROOT / "_functorch" / "_aot_autograd").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).startswith(
                "_compile_and_exec"
            ):
                names |= {a.value for a in node.args[3:4] if isinstance(a, ast.Constant)}
    if not names:
        pytest.skip("this torch writes no wrappers")
    assert not {name for name in names if not is_known(f"artifact/{name}")}


@pytest.mark.parametrize("name", ["someone's own", "artifact/someone's own", "aot_other_graph", "artifact/", ""])
def test_what_torch_does_not_write_is_unknown(name: str) -> None:
    assert not is_known(name)


def rows() -> list[tuple[list[str], str, str]]:
    """(the names, what is shown, where) of each row of the table of records in docs/traces.md."""
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    section = text.partition("## What is read of each record")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    return [(re.findall(r"`([^`]+)`", first), shown, where) for first, shown, where in cells[2:]]


def labels(written: Written) -> set[str]:
    """Every name that the installed torch writes, with "word" for a part that changes."""
    found = set()
    for file, kind, name in written:
        if isinstance(name, ast.Name):
            found |= {label.removeprefix("artifact/") for label in BY_VARIABLE.get((file, name.id)) or ()}
        else:
            found |= {"artifact" if kind and text == "word" else text for text in possible(name, file)}
    return found - {"word"}


@pytest.mark.slow
def test_each_record_has_a_row_that_says_what_is_shown_and_where(written: Written) -> None:
    patterns = [name for names, _, _ in rows() for name in names]
    wanted = labels(written) | known.TYPES | known.ARTIFACTS | TLPARSES
    missing = {name for name in wanted if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}
    assert not missing
    assert all(names and shown and where for names, shown, where in rows())


def test_each_row_names_records_that_exist() -> None:
    for names, _, _ in rows():
        for name in names:
            text = name.replace("*", "word")
            known_here = name in known.TYPES or is_known(text) or is_known(f"artifact/{text}")
            assert "*" in name or known_here, name


# What tlparse 0.4.3 makes a page or a part of its report of.
TLPARSES = frozenset(
    """
    dynamo_start dynamo_output_graph optimize_ddp_split_graph optimize_ddp_split_child compiled_autograd_graph
    dynamo_guards dynamo_cpp_guards_str aot_forward_graph aot_backward_graph aot_inference_graph aot_joint_graph
    inductor_pre_grad_graph inductor_post_grad_graph inductor_output_code compilation_metrics bwd_compilation_metrics
    aot_autograd_backward_compilation_metrics graph_dump link artifact dump_file chromium_event
    symbolic_shape_specialization guard_added guard_added_fast exported_program propagate_real_tensors_provenance
    expression_created create_unbacked_symbol missing_fake_kernel mismatched_fake_kernel stack str graph_execution
    inductor_collective_schedule inductor_runtime_and_tensor_meta aotautograd_cache_hit aotautograd_cache_miss
    aotautograd_cache_bypass fx_graph_cache_hit fx_graph_cache_miss fx_graph_cache_bypass
    inductor_provenance_tracking_node_mappings
    """.split()
)


def test_no_record_that_tlparse_shows_is_text_alone() -> None:
    """But for links, files and artifacts without a type of their own, which are texts for tlparse too."""
    alone = {name for names, _, where in rows() for name in names if where == "text"}
    assert TLPARSES & alone <= {"link", "dump_file", "artifact"}
