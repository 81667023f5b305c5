"""Whatever changes what would be compiled changes the key, and the ingredient that differs is the one that names it.

The mutations are generated: every option, every setting of torch that is in keys, every environment variable, modes,
layouts, and every pair of layouts over one storage. Those of programs are in test_key_mutations_of_code.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
import torch

from aotviz.cache import key, settings_in_keys
from aotviz.frontends.backend import OPTIONS
from aotviz.lowerings import Inductor
from aotviz.torch_private import surroundings_of_a_key as torchs
from tests.cache.captured import Captured, captured, differing, keys
from tests.cache.mutations import other

INDUCTOR = Inductor({})
TITLES = {
    settings_in_keys.INDUCTOR: "Inductor's settings",
    settings_in_keys.AOT: "AOTAutograd's settings",
    settings_in_keys.DYNAMO: "Dynamo's settings",
    settings_in_keys.SHAPES: "settings of symbols",
}


@pytest.fixture(scope="module")
def program() -> Captured:
    torch.set_float32_matmul_precision("highest")  # what a call of this leaves differs from torch's initial state

    def model(x, w):
        return (x @ w).relu().sum(), x.add_(1)

    return captured(model, torch.ones(2, 3), torch.ones(3, 4, requires_grad=True))


# Options and settings


OTHER_OPTIONS: dict[str, Any] = {
    "debug": True,
    "decompositions": {torch.ops.aten.silu.default: lambda x: x * x.sigmoid()},
    "donate_buffers": False,
    "keep_inference_input_mutations": True,
    "partition_fn": "default_partition",
}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in key.NOT_IN_KEYS])
def test_an_option(name, program):
    assert differing(program.key(), program.key(**{name: OTHER_OPTIONS[name]})) == {"options"}


SETTINGS = [
    (module, name)
    for module, left_out in settings_in_keys.LEFT_OUT.items()
    for name, _, _ in torchs.settings(module)
    if name not in left_out
]


@pytest.mark.every(3)
@pytest.mark.parametrize(("module", "name"), SETTINGS, ids=[f"{module}.{name}" for module, name in SETTINGS])
def test_a_setting(module, name, program, monkeypatch):
    held = torchs.MODULES[module]
    before = program.key(lowering=INDUCTOR)
    entry = held._config[name]
    monkeypatch.setattr(entry, "env_value_force", other(getattr(held, name)))
    held._mark_get_dict_dirty(name) if hasattr(held, "_mark_get_dict_dirty") else None
    try:
        after = program.key(lowering=INDUCTOR)
        assert differing(before, after) == {TITLES[module]}
        assert f"{name} = " in after.ingredients[TITLES[module]]
    finally:
        monkeypatch.undo()
        held._mark_get_dict_dirty(name) if hasattr(held, "_mark_get_dict_dirty") else None
    assert not differing(before, program.key(lowering=INDUCTOR))


OF_INDUCTOR = [name for module, name in SETTINGS if module == settings_in_keys.INDUCTOR]


@pytest.mark.every(3)
@pytest.mark.parametrize("name", OF_INDUCTOR)
def test_an_option_of_inductor(name, program):
    value = other(getattr(torchs.MODULES[settings_in_keys.INDUCTOR], name))
    after = program.key(lowering=Inductor({name: value}))
    assert differing(program.key(lowering=INDUCTOR), after) == {"Inductor's settings"}
    assert f"{name} = " in after.ingredients["Inductor's settings"]


@pytest.mark.parametrize("name", settings_in_keys.READ_WITHOUT_INDUCTOR)
def test_a_setting_of_inductor_that_matters_without_it(name, program):
    before = program.key()
    with torchs.MODULES[settings_in_keys.INDUCTOR].patch(
        {name: other(getattr(torchs.MODULES[settings_in_keys.INDUCTOR], name))}
    ):
        assert differing(before, program.key()) == {"Inductor's settings"}


def test_the_backend(program):
    assert differing(program.key(), program.key(lowering=INDUCTOR)) == {"backend", "Inductor's settings"}


@pytest.mark.parametrize(
    "name", [*settings_in_keys.READ_LATE, "TORCHINDUCTOR_MAX_AUTOTUNE", "TRITON_ALWAYS_COMPILE", "TORCHDYNAMO_X"]
)
def test_an_environment_variable(name, program, monkeypatch):
    monkeypatch.delenv(name, raising=False)
    before = program.key()
    monkeypatch.setenv(name, "one")
    one = program.key()
    monkeypatch.setenv(name, "two")
    assert differing(before, one) == differing(one, program.key()) == {"environment"}


@pytest.mark.parametrize("name", settings_in_keys.ENVIRONMENT_LEFT_OUT)
def test_an_environment_variable_that_is_left_out(name, program, monkeypatch):
    monkeypatch.delenv(name, raising=False)
    before = program.key()
    monkeypatch.setenv(name, "one")
    assert not differing(before, program.key())


# Modes


def set_and_restored(setter: Callable[[Any], Any], value: Any, before: Any) -> AbstractContextManager[Any]:
    stack = ExitStack()
    setter(value)
    stack.callback(setter, before)
    return stack


def of_module(module: Any, name: str) -> Callable[[], AbstractContextManager[Any]]:
    value = getattr(module, name)
    return lambda: set_and_restored(lambda v: setattr(module, name, v), other(value), value)


def deterministic(warns: bool) -> AbstractContextManager[Any]:
    return set_and_restored(lambda on: torch.use_deterministic_algorithms(on, warn_only=warns and on), True, False)


PLAIN = torch.fx.symbolic_trace(lambda x: x + 1)
OTHERS = [torch.fx.symbolic_trace(lambda x: x + 2), torch.fx.symbolic_trace(lambda x: x - 1)]
hooks = torch.autograd.graph.saved_tensors_hooks
MODES: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "no_grad": ("grad mode", torch.no_grad),
    "inference_mode": ("grad mode", torch.inference_mode),
    **{
        f"autocast {kind} {dtype} {cached}": (
            "autocast",
            lambda kind=kind, dtype=dtype, cached=cached: torch.autocast(kind, dtype, cache_enabled=cached),
        )
        for kind in ("cpu",)
        for dtype in (torch.bfloat16, torch.float16)
        for cached in (True, False)
    },
    "deterministic": ("determinism", lambda: deterministic(False)),
    "deterministic, warns": ("determinism", lambda: deterministic(True)),
    "fills memory": ("determinism", of_module(torch.utils.deterministic, "fill_uninitialized_memory")),
    **{
        f"default {dtype}": ("defaults", lambda d=dtype: set_and_restored(torch.set_default_dtype, d, torch.float32))
        for dtype in (torch.float64, torch.bfloat16, torch.float16)
    },
    "default device": ("defaults", lambda: torch.device("meta")),
    **{
        f"matmul {how}": (
            "precision",
            lambda how=how: set_and_restored(torch.set_float32_matmul_precision, how, "highest"),
        )
        for how in ("high", "medium")
    },
    **{
        f"{module.__name__}.{name}": ("precision", of_module(module, name))
        for module, names in (
            (torch.backends.cudnn, "enabled benchmark deterministic allow_tf32"),
            (torch.backends.mkldnn, "enabled deterministic"),
        )
        for name in names.split()
    },
    "flash": (
        "precision",
        lambda: set_and_restored(torch.backends.cuda.enable_flash_sdp, False, True),
    ),
    "math": ("precision", lambda: set_and_restored(torch.backends.cuda.enable_math_sdp, False, True)),
    "threads": ("threads", lambda: set_and_restored(torch.set_num_threads, 5, torch.get_num_threads())),
    "hooks": ("saved tensor hooks", lambda: hooks(PLAIN, PLAIN)),
    "hooks that pack otherwise": ("saved tensor hooks", lambda: hooks(OTHERS[0], PLAIN)),
    "hooks that unpack otherwise": ("saved tensor hooks", lambda: hooks(PLAIN, OTHERS[1])),
    "hooks that are no graphs": ("saved tensor hooks", lambda: hooks(lambda x: x, lambda x: x)),
}
if torch.get_num_threads() == 5:
    del MODES["threads"]


@pytest.fixture
def flags(monkeypatch):
    """Lets a test set flags of torch.backends, which torch's own helpers for tests forbid once they are imported."""
    setter = torch.backends.ContextProp.__set__
    monkeypatch.setitem(setter.__globals__, "flags_frozen", lambda: False)


@pytest.mark.parametrize("name", MODES)
def test_a_mode(name, program, flags):
    title, mode = MODES[name]
    before = program.key()
    with mode():
        after = program.key()
    assert differing(before, after) == {title}
    assert not differing(before, program.key())


def test_each_mode_has_a_key_of_its_own(program, flags):
    found = []
    for _, mode in MODES.values():
        with mode():
            found.append(program.key().digest)
    assert len({*found, program.key().digest}) == len(MODES) + 1


@pytest.mark.parametrize("name", key.of_process())
def test_a_fact_of_the_process(name, program, monkeypatch):
    before = program.key()
    facts = {**key.of_process(), name: "other"}
    monkeypatch.setattr(key, "of_process", lambda: facts)
    assert differing(before, program.key()) == {name}


# One input


@pytest.fixture(scope="module")
def one_input() -> Captured:
    return captured(lambda x: x * 2, torch.ones(4, 6))


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_()


def no_leaf() -> torch.Tensor:
    return leaf(torch.ones(4, 6)) * 1


def under_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4, 6)


def marked(tensor: torch.Tensor) -> torch.Tensor:
    tensor._dynamo_static_input_type = "guarded"  # type: ignore[attr-defined]
    return tensor


DTYPES = [
    getattr(torch, name)
    for name in "bool uint8 int8 int16 int32 int64 float16 bfloat16 float64 complex64 complex128 float8_e4m3fn".split()
]
INPUTS: dict[str, Callable[[], Any]] = {
    **{str(dtype): lambda dtype=dtype: torch.ones(4, 6).to(dtype) for dtype in DTYPES},
    **{
        f"size {size}": lambda size=size: torch.ones(size)
        for size in itertools.product((0, 1, 2, 4, 5, 6), repeat=2)
        if size != (4, 6)
    },
    "strides": lambda: torch.ones(6, 4).t(),
    "gaps": lambda: torch.empty_strided((4, 6), (8, 1)),
    "no strides": lambda: torch.ones(1, 6).expand(4, 6),
    "offset": lambda: torch.empty(30).set_(torch.UntypedStorage(200), 2, (4, 6), (6, 1)),
    "offset of another": lambda: torch.empty(30).set_(torch.UntypedStorage(200), 3, (4, 6), (6, 1)),
    "storage": lambda: torch.empty(30).set_(torch.UntypedStorage(200), 0, (4, 6), (6, 1)),
    "storage of another size": lambda: torch.empty(30).set_(torch.UntypedStorage(300), 0, (4, 6), (6, 1)),
    "requires grad": lambda: leaf(torch.ones(4, 6)),
    "not a leaf": no_leaf,
    "parameter": lambda: torch.nn.Parameter(torch.ones(4, 6)),
    "parameter without grad": lambda: torch.nn.Parameter(torch.ones(4, 6), requires_grad=False),
    "inference": under_inference,
    "conjugate": lambda: torch.ones(4, 6, dtype=torch.complex64).conj(),
    "negative": lambda: torch.ones(4, 6, dtype=torch.complex64).conj().imag,
    "view": lambda: torch.ones(24).view(4, 6),
    "view of a part": lambda: torch.ones(48)[:24].view(4, 6),
    "view of a leaf": lambda: leaf(torch.ones(24)).view(4, 6),
    "view without grad of a leaf": lambda: torch.no_grad()(torch.Tensor.view)(leaf(torch.ones(24)), 4, 6),
    "leaf that is a view": lambda: torch.ones(24).view(4, 6).requires_grad_(),
    "view of a non-leaf": lambda: (leaf(torch.ones(24)) * 1).view(4, 6),
    "view of complex": lambda: torch.view_as_real(torch.ones(4, 3, dtype=torch.complex64)).view(4, 6),
    "meta": lambda: torch.ones(4, 6, device="meta"),
    "static": lambda: marked(torch.ones(4, 6)),
    "sparse": lambda: torch.ones(4, 6).to_sparse(),
    "number": lambda: 3,
    "another number": lambda: 4,
    "float": lambda: 3.0,
    "none": lambda: None,
    "text": lambda: "3",
}
OF_INPUTS = {"inputs", "memory layout"}


@pytest.mark.parametrize("name", INPUTS)
def test_an_input(name, one_input):
    found = differing(one_input.key(), one_input.key([INPUTS[name]()]))
    assert found
    assert found <= OF_INPUTS


def test_no_two_of_these_inputs_have_one_key(one_input):
    seen: dict[str, str] = {}
    for name, made in INPUTS.items():
        digest = one_input.key([made()]).digest
        assert digest not in seen, f"{name} and {seen[digest]}"
        seen[digest] = name


# Several inputs


@pytest.fixture(scope="module")
def two_inputs() -> Captured:
    return captured(lambda x, y: (x * 2, y + 1), torch.ones(2, 2), torch.zeros(2, 2))


LAYOUTS = [
    ((2, 2), stride, offset) for stride in ((2, 1), (1, 2), (4, 1), (0, 1)) for offset in (0, 1, 2, 4)
]  # size, stride, offset


def over_one_storage(one: Any, other: Any) -> list[torch.Tensor]:
    storage = torch.UntypedStorage(100)
    return [torch.empty(0).set_(storage, offset, size, stride) for size, stride, offset in (one, other)]


def apart(one: Any, other: Any) -> list[torch.Tensor]:
    return [over_one_storage(layout, layout)[0] for layout in (one, other)]


PAIRS = list(itertools.product(LAYOUTS, repeat=2))


def test_each_pair_of_layouts_over_one_storage_has_a_key_of_its_own(two_inputs):
    found = [two_inputs.key(made(*pair)) for pair in PAIRS for made in (over_one_storage, apart)]
    assert len(found) == 512
    assert len({one.digest for one in found}) == 512
    for shared, alone in zip(found[::2], found[1::2], strict=True):
        assert differing(shared, alone) == {"memory layout"}


def twice(x: torch.Tensor) -> list[Any]:
    return [x, x]


KINSHIP: dict[str, Callable[[torch.Tensor], list[Any]]] = {
    "one tensor": twice,
    "detached": lambda x: [x.detach(), x.detach()],
    "data": lambda x: [x.data, x.data],
    "one and its data": lambda x: [x, x.data],
    "one and its view": lambda x: [x, x.view(2, 2)],
    "views": lambda x: [x.view(2, 2), x.view(2, 2)],
    "views of different bases": lambda x: [x.view(2, 2), x.data.view(2, 2)],
    "apart": lambda x: [x.clone(), x.clone()],
}


@pytest.mark.parametrize("graded", [False, True])
def test_each_kinship_of_two_tensors_in_one_place_has_a_key_of_its_own(graded, two_inputs):
    found: dict[str, str] = {}
    for name, made in KINSHIP.items():
        x = torch.ones(2, 2, requires_grad=graded)
        given = made(x * 1 if graded else x)
        digest = two_inputs.key(given).digest
        alike = not graded and {name, found.get(digest)} == {"data", "one and its data"}  # two counters, and no base
        assert alike or digest not in found, f"{name} and {found[digest]}"
        found[digest] = name


# Sizes that are symbols


def sizes(x, y):
    return x * 2, y + x.shape[0]


def mark(low: int | None = None, high: int | None = None, *dims: int) -> list[torch.Tensor]:
    x = torch.ones(8, 6)
    for dim in dims or (0,):
        torch._dynamo.mark_dynamic(x, dim, **({} if low is None else {"min": low, "max": high}))
    return [x, torch.ones(3)]


def unbacked() -> list[torch.Tensor]:
    x = torch.ones(8, 6)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    return [x, torch.ones(3)]


SYMBOLS: dict[str, Callable[[], Any]] = {
    "static": lambda: keys(sizes, torch.ones(8, 6), torch.ones(3)),
    "dynamic": lambda: keys(sizes, torch.ones(8, 6), torch.ones(3), dynamic=True),
    "equal sizes": lambda: keys(sizes, torch.ones(8, 8), torch.ones(3), dynamic=True),
    "equal sizes of two": lambda: keys(sizes, torch.ones(8, 6), torch.ones(8), dynamic=True),
    "the first": lambda: keys(sizes, *mark(), dynamic=None),
    "the second": lambda: keys(sizes, *mark(None, None, 1), dynamic=None),
    "both": lambda: keys(sizes, *mark(None, None, 0, 1), dynamic=None),
    "3 to 40": lambda: keys(sizes, *mark(3, 40), dynamic=None),
    "4 to 50": lambda: keys(sizes, *mark(4, 50), dynamic=None),
    "unbacked": lambda: keys(sizes, *unbacked(), dynamic=None),
    "4 to 40": lambda: keys(sizes, *mark(4, 40), dynamic=None),
    "a size of one": lambda: keys(sizes, torch.ones(1, 6), torch.ones(3), dynamic=True),
    "strides": lambda: keys(sizes, torch.ones(6, 8).t(), torch.ones(3), dynamic=True),
    "a number": lambda: keys(lambda x, n: x * n, torch.ones(3), 7, dynamic=True),
    "a static number": lambda: keys(lambda x, n: x * n, torch.ones(3), 7),
    **{
        f"guard {text}": lambda text=text: keys(
            eval(f"lambda x, y: (x * 2, y + x.shape[0]) if {text} else x"),
            torch.ones(8, 6),
            torch.ones(3),
            dynamic=True,
        )
        for text in ("x.shape[0] % 4 == 0", "x.shape[0] > 5", "x.shape[0] != 7", "x.shape[0] > x.shape[1]")
    },
}


def test_what_is_known_of_each_size_is_in_the_key():
    found: dict[str, str] = {}
    for name, made in SYMBOLS.items():
        (one,) = made()
        assert one.digest not in found, f"{name} and {found[one.digest]}"
        found[one.digest] = name


def test_at_least_two_hundred_mutations_were_generated():
    assert sum(map(len, (SETTINGS, OF_INDUCTOR, MODES, INPUTS, PAIRS, SYMBOLS))) >= 200
