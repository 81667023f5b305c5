"""The committed logs are what the programs write today, and tell nothing of the machine that wrote them."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import torch

from tests import corpus
from tests.corpus import make

WANTED = {
    "recompiles_tensors": {"artifact/recompile_reasons", "dynamo_cpp_guards_str", "compilation_metrics"},
    "dynamic_shapes": {"create_symbol", "guard_added_fast", "create_unbacked_symbol", "symbolic_shape_specialization"},
    "graph_breaks": {"artifact/dynamo_graph_break_reason"},
    "training": {
        "aot_joint_graph",
        "artifact/inductor_post_grad_graph",
        "inductor_output_code",
        "bwd_compilation_metrics",
    },
    "compiled_autograd": {"compiled_autograd_graph"},
    "ddp": {"optimize_ddp_split_graph", "optimize_ddp_split_child"},
    "errors": {"artifact/dynamo_error"},
    "aliases": {"describe_tensor", "describe_storage", "describe_source"},
    "exports": {"artifact/make_fx_fail_partial", "create_unbacked_symbol"},
    "exports_detailed": {"export", "exported_program", "guard_on_data_dependent_error", "expression_created"},
    "exports_draft": {
        "propagate_real_tensors_provenance",
        "missing_fake_kernel",
        "mismatched_fake_kernel",
        "guard_added",
    },
    "aoti": {"graph_dump", "artifact/inductor_provenance_tracking_node_mappings"},
    "restarts": {"artifact/dynamo_graph_break_reason"},
    "cache_type_second": {"artifact/aotautograd_cache_miss"},
    "ranks": {"artifact/inductor_collective_schedule"},
    "ranks_diverge": {
        "artifact/graph_execution",
        "artifact/inductor_runtime_and_tensor_meta",
        "artifact/inductor_collective_schedule",
    },
    "cache_first": {"bwd_compilation_metrics", "artifact/aotautograd_cache_miss", "artifact/fx_graph_cache_miss"},
    "cache_second": {
        "artifact/aotautograd_cache_hit",
        "artifact/aotautograd_cache_miss",
        "artifact/aotautograd_cache_bypass",
    },
}


def kinds_of(name: str) -> set[str]:
    return set().union(*(make.kinds(path.read_bytes()) for path in corpus.folder(name).iterdir()))


@pytest.mark.parametrize("name", WANTED)
def test_each_program_provokes_what_it_is_for(name: str) -> None:
    assert WANTED[name] <= kinds_of(name)


def test_every_run_is_committed() -> None:
    assert corpus.names() == sorted(run.name for run in make.RUNS)


def test_no_log_names_a_folder_of_the_machine() -> None:
    for path in corpus.logs():
        found = set(re.findall(rb"/(?:home|root|work|usr|opt|tmp|var|Users)/[^\"'\\ ]{0,60}", path.read_bytes()))
        assert not found, f"{path.name}: {sorted(found)[:5]}"


def test_checksums_hold() -> None:
    for path in corpus.logs():
        for head, payload in make.records(path.read_bytes()):
            record = json.loads(head[head.index(b"] ") + 2 :])
            if "has_payload" in record:
                text = payload[1:-1].replace(b"\n\t", b"\n")
                assert record["has_payload"] == hashlib.md5(text, usedforsecurity=False).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the corpus is of torch 2.13")
@pytest.mark.parametrize("name", ["recompile_limit", "errors"])
def test_a_program_run_anew_logs_the_same_kinds(name, tmp_path) -> None:
    make.make(tuple(run for run in make.RUNS if run.name == name), tmp_path)
    again = set().union(*(make.kinds(path.read_bytes()) for path in (tmp_path / name).iterdir()))
    assert again == kinds_of(name)
