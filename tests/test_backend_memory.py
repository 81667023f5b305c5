"""Arguments that lie otherwise in memory than when a function was compiled get a program of their own."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import warnings
import weakref

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
import aotviz.frontends.backend
from aotviz.frontends.compiling import Pipeline
from aotviz.ir.refusals import RanInEager
from aotviz.recording.store import Store
from tests.tiers import slow

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def doubled(x, y, w):
    x.mul_(2)
    return y * w, x + 1


KINDS = {
    "separate": lambda base, rows: (base[:rows].clone(), base[1 : rows + 1].clone()),
    "overlapping": lambda base, rows: (base[:rows], base[1 : rows + 1]),
    "apart": lambda base, rows: (base[:rows], base[rows : 2 * rows]),
    "same": lambda base, rows: (base[:rows],) * 2,
}


def step(function, kind, training=False, rows=3, offset=0.0):
    """Everything that a call leaves behind: results, what is written, and gradients."""
    w = torch.linspace(1, 2, 2).requires_grad_(training)
    leaf = torch.arange(24.0).view(12, 2).add(offset).requires_grad_(training)
    base = leaf * 1 if training else leaf
    x, y = KINDS[kind](base, rows)
    results = function(x, y, w)
    gradients = []
    if training:
        sum(r.sin().sum() for r in results).backward()
        gradients = [w.grad, leaf.grad]
    versions = [x._version, y._version, base._version]
    return [*results, x, y, base, *gradients], versions


def same_as_eager(compiled, kind, function=doubled, **how):
    expected, versions = step(function, kind, **how)
    found, found_versions = step(compiled, kind, **how)
    torch.testing.assert_close(found, expected)
    assert found_versions == versions


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("order", list(itertools.permutations(["separate", "overlapping", "same"])), ids="-".join)
def test_separate_overlapping_and_same_are_three_programs_that_are_kept(order, training):
    compiled = torch.compile(doubled, backend="aotviz_eager")
    with aotviz.record() as recording:
        for offset in (0.0, 1.0):
            for kind in order:
                same_as_eager(compiled, kind, training=training, offset=offset)
    assert len(recording.compilations) == 3
    assert {one.name.partition(" ")[0] for one in recording.compilations} == {"doubled"}
    recompiles = recording.recompiles()
    assert recompiles.outcome.tolist() == ["compiled"] * 2
    assert recompiles.subject.tolist() == ["x, y"] * 2
    assert all("`x` and `y`" in why for why in recompiles.why)


@pytest.mark.parametrize("order", [slow(("separate", "overlapping")), ("overlapping", "separate")], ids="-".join)
def test_inductor_compiles_for_both_patterns(order):
    compiled = torch.compile(doubled, backend="aotviz")
    with aotviz.record() as recording:
        for kind in order * 2:
            same_as_eager(compiled, kind, training=order[0] == "separate")
    assert len(recording.compilations) == 2


def test_the_reason_says_how_the_arguments_lay_and_lie():
    compiled = torch.compile(doubled, backend="aotviz_eager")
    with aotviz.record() as recording:
        for kind in ("separate", "overlapping", "apart"):
            same_as_eager(compiled, kind)
    first, second = recording.recompiles().to_dict("records")
    lay = "`doubled` was compiled again because `x` and `y` were in separate storages and "
    assert first["why"] == f"{lay}overlap in one storage now."
    assert (first["earlier"], first["kind"], first["before"]) == ("0", "memory", "in separate storages")
    last = recording.compilations[2].data.because
    assert last == [
        "x and y were overlapping views of one storage and are apart in one storage",
        "x and y were in separate storages and are apart in one storage",
    ]
    assert "overlap in one storage now" in str(recording.explain())
    assert second["earlier"] in ("0", "1")
    assert [one.name for one in aotviz.frontends.backend.recent().compilations[-3:]] == ["doubled [0/0]"] * 3


def test_where_nothing_is_written_one_program_serves_all():
    compiled = torch.compile(lambda x, y, w: (x * w, y + 1), backend="aotviz_eager")
    with aotviz.record() as recording:
        for kind in ("separate", "overlapping", "apart"):
            same_as_eager(compiled, kind, lambda x, y, w: (x * w, y + 1))
    assert len(recording.compilations) == 1


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_other_offsets_of_an_overlap_get_programs_of_their_own(training):
    def shifted(x, y, w):
        y[0] = 7.0
        return (x * w).sin(), y.cos()

    compiled = torch.compile(shifted, backend="aotviz_eager")
    with aotviz.record() as recording:
        for rows in (3, 3):
            for kind in ("overlapping", "apart", "separate"):
                same_as_eager(compiled, kind, shifted, training=training, rows=rows)
    assert len(recording.compilations) == 3


@pytest.mark.parametrize("kind", ["separate", "apart"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_size_that_is_symbolic_is_so_in_further_programs(kind, training):
    def sized(x, y, w):
        x.mul_(x.shape[0])
        return y * w, x.view(-1)

    def called(x, y, w):
        torch._dynamo.maybe_mark_dynamic(x, 0)
        torch._dynamo.maybe_mark_dynamic(y, 0)
        return compiled(x, y, w)

    compiled = torch.compile(sized, backend="aotviz_eager")
    first = "apart" if kind == "separate" else "separate"
    with aotviz.record() as recording:
        for rows in (3, 5):
            same_as_eager(called, first, sized, training=training, rows=rows)
        for rows in (3, 5, 2, 6):
            same_as_eager(called, kind, sized, training=training, rows=rows)
    assert len(recording.compilations) == 2
    assert len(recording.recompiles()) == 1


def test_an_overlap_is_compiled_for_its_sizes_also_where_they_are_symbolic():
    compiled = torch.compile(doubled, backend="aotviz_eager", dynamic=True)
    with aotviz.record() as recording:
        same_as_eager(compiled, "separate")
        for rows in (3, 4, 3, 4, 5):
            same_as_eager(compiled, "overlapping", rows=rows)
        same_as_eager(compiled, "separate", rows=7)
    assert len(recording.compilations) == 4
    assert "x.shape[0] changed from 3 to 4" in recording.compilations[2].data.because[0]


def shifts(function, count):
    found = []
    for k in range(1, count + 1):
        base = torch.arange(24.0)
        found += [function(base[:4], base[k : k + 4]), base]
    return found


def written_first(x, y):
    x.mul_(2)
    return y + 1


@contextlib.contextmanager
def eager_runs():
    """Collects what is said about calls that run in eager."""
    said = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield said
    said += [str(one.message) for one in found if one.category is RanInEager]


def test_patterns_are_bounded_by_the_recompile_limit():
    compiled = torch.compile(written_first, backend="aotviz_eager")
    with torch._dynamo.config.patch(recompile_limit=3), aotviz.record() as recording, eager_runs() as said:
        for _ in range(2):
            torch.testing.assert_close(shifts(compiled, 3), shifts(written_first, 3))
        torch.testing.assert_close(compiled(torch.ones(4), torch.ones(4)), torch.full((4,), 2.0))
    (text,) = said
    assert text.startswith("some calls of written_first run in eager: x and y were ")
    assert text.endswith("torch._dynamo.config.recompile_limit allows, currently set to 3")
    assert recording.recompiles().outcome.tolist() == ["compiled", "compiled", "limit"]
    assert "reached the recompile limit of 3" in recording.recompiles().why.tolist()[-1]


def overlapping_pair():
    base = torch.arange(6.0)
    return base[:4], base[2:]


def written_beside_parts(x, t):
    x.mul_(2)
    return t + 1


def inside_parts():
    """What aotviz refuses: a tensor that is written, and overlaps a part of another one."""
    base = torch.arange(6.0)
    return base[2:], TwoTensor(base[:4], torch.ones(4))


def apart_from_parts():
    return torch.ones(4), TwoTensor(torch.ones(4), torch.ones(4))


def test_a_refused_pattern_runs_in_eager_and_says_why():
    compiled = torch.compile(written_beside_parts, backend="aotviz_eager")
    compiled(*apart_from_parts())
    with aotviz.record() as recording, eager_runs() as said:
        for _ in range(2):
            found, expected = inside_parts(), inside_parts()
            result, right = compiled(*found), written_beside_parts(*expected)
            for one, other in ((result.a, right.a), (result.b, right.b), (found[0], expected[0])):
                assert torch.equal(one, other)
        compiled(*apart_from_parts())
    (text,) = said
    assert text.startswith("some calls of written_beside_parts run in eager: x and t.a were in separate storages and ")
    assert "overlap in memory inside a tensor subclass" in text
    assert len(recording.compilations) == 1
    assert recording.recompiles().outcome.tolist() == ["eager"]
    assert recording.recompiles().subject.tolist() == ["x, t.a"]


def test_a_refused_pattern_is_raised_where_the_user_asks_for_it():
    compiled = torch.compile(written_beside_parts, backend="aotviz_eager", options={"on_refusal": "raise"})
    compiled(*apart_from_parts())
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="overlap in memory inside a tensor subclass"):
            compiled(*inside_parts())


def test_a_compiler_that_fails_for_a_pattern_leaves_it_to_eager(monkeypatch):
    compiled = torch.compile(written_first, backend="aotviz_eager")
    compiled(torch.ones(4), torch.ones(4))

    def fails(*_, **__):
        raise RuntimeError("no code for this")

    monkeypatch.setattr(Pipeline, "program", fails)
    with pytest.warns(RanInEager, match="no code for this"):
        torch.testing.assert_close(shifts(compiled, 1), shifts(written_first, 1))
    torch.testing.assert_close(shifts(compiled, 1), shifts(written_first, 1))


def test_two_threads_compile_a_pattern_once(monkeypatch):
    monkeypatch.setattr(aotviz.frontends.backend, "_recent", Store())  # the process's may be full
    compiled = torch.compile(written_first, backend="aotviz_eager")
    compiled(torch.ones(4), torch.ones(4))
    start, found = threading.Barrier(3), []

    def calls():
        start.wait()
        found.append(shifts(compiled, 2))

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        torch.testing.assert_close(one, shifts(written_first, 2))
    assert len(found) == 3
    assert len(aotviz.frontends.backend.recent().compilations) == 1 + 2


def test_options_are_respected_by_further_compilations():
    stages = []
    options = {"record": False, "on_stage": lambda name, elapsed: stages.append(name) if elapsed else None}
    compiled = torch.compile(written_first, backend="aotviz_eager", options=options)
    compiled(torch.ones(4), torch.ones(4))
    count, before = len(stages), len(aotviz.frontends.backend.recent().compilations)
    shifts(compiled, 1)
    assert stages[count:].count("link") == 1
    assert len(aotviz.frontends.backend.recent().compilations) == before
    shifts(compiled, 1)
    assert stages[count:].count("link") == 1


def test_a_transform_and_forward_mode_run_in_eager_without_a_compilation():
    compiled = torch.compile(written_first, backend="aotviz_eager")
    compiled(torch.ones(4), torch.ones(4))
    with aotviz.record() as recording, torch.autograd.forward_ad.dual_level():
        base = torch.autograd.forward_ad.make_dual(torch.arange(6.0), torch.ones(6))
        x, y = base[:4] * 1, base[2:] * 1
        result = compiled(x, y)
        tangent = torch.autograd.forward_ad.unpack_dual(result).tangent
        assert torch.equal(tangent, torch.ones(4))
    assert all("memory" not in kind for kind in recording.recompiles().kind)


def test_a_stance_that_forbids_recompiles_forbids_these():
    compiled = torch.compile(written_first, backend="aotviz_eager")
    compiled(torch.ones(4), torch.ones(4))
    with aotviz.record() as recording:
        with torch.compiler.set_stance("eager_on_recompile"):
            torch.testing.assert_close(shifts(compiled, 1), shifts(written_first, 1))
        assert not recording.compilations
        torch.testing.assert_close(shifts(compiled, 1), shifts(written_first, 1))
        assert len(recording.compilations) == 1


def test_parameters_buffers_and_modes_are_those_of_the_call():
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x, y):
            x.mul_(2)
            with torch.no_grad():
                self.seen.add_(y.detach())
            return self.linear(y) + self.seen

    def left(module, function):
        found = []
        for mode in (torch.enable_grad, torch.no_grad):
            with mode(), torch.autocast("cpu", torch.bfloat16, enabled=mode is torch.no_grad):
                for pair in ((torch.ones(4), torch.ones(4)), overlapping_pair(), overlapping_pair()):
                    found += [function(*pair), *pair]
                if mode is torch.enable_grad:
                    found[-3].sum().backward()
        return [value.detach() for value in found], module.seen, module.linear.weight.grad

    torch.manual_seed(0)
    module = Norm()
    twin = Norm()
    twin.load_state_dict(module.state_dict())
    with aotviz.record() as recording:
        found = left(twin, torch.compile(twin, backend="aotviz_eager"))
    torch.testing.assert_close(found, left(module, module))
    assert len(recording.compilations) == 4


def test_no_argument_of_a_call_is_kept():
    made = []
    compiled = torch.compile(lambda x, y: (x.mul_(2), y + 1)[1], backend="aotviz_eager")
    for pair in ((torch.ones(4), torch.ones(4)), overlapping_pair()):
        made += [weakref.ref(value) for value in pair]
        compiled(*pair)
        del pair
    gc.collect()
    assert [one() for one in made] == [None] * 4


def test_histories_and_version_counters_are_told_apart_in_one_pattern():
    """Two calls whose arguments lie alike, and are views of one tensor in the one, `.data` of it in the other."""

    def calls(function):
        found = []
        for other in (lambda base: base, lambda base: base.data, lambda base: base.detach()):
            base = torch.arange(6.0)
            x, y = base[:4], other(base)[2:]
            found += [function(x, y), base, torch.tensor([x._version, y._version, base._version])]
        return found

    torch.testing.assert_close(calls(torch.compile(written_first, backend="aotviz_eager")), calls(written_first))


def test_arguments_in_lists_may_overlap_too():
    def listed(pair, w):
        pair[0].mul_(2)
        return pair[1] * w

    def calls(function):
        found = []
        for pair in ((torch.ones(4), torch.ones(4)), overlapping_pair(), overlapping_pair()):
            found += [function(list(pair), torch.ones(4)), *pair]
        return found

    with aotviz.record() as recording:
        torch.testing.assert_close(calls(torch.compile(listed, backend="aotviz_eager")), calls(listed))
    assert recording.recompiles().subject.tolist() == ["pair[0], pair[1]"]


def test_no_warning_where_patterns_compile():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RanInEager)
        shifts(torch.compile(written_first, backend="aotviz_eager"), 3)
