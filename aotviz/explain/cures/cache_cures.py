"""What to do about misses and bypasses of torch's compile caches and of aotviz's."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

FORCE = Cure("hit that hides graphs", "To see the graphs, run once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1.")
AUTOGRAD_FUNCTION = Cure(
    "bypass for an autograd.Function",
    "Set `torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True` if its code does not "
    "depend on anything outside it; otherwise nothing is wrong, the FX graph cache below still works.",
    settings={"torch._functorch.config.autograd_cache_allow_custom_autograd_functions": True},
)
UNSAFE_FUNCTION = Cure(
    "bypass for a function",
    "Nothing to do if this compilation is cheap. A custom operator made by `torch.library` can be cached.",
)
PASS = Cure(
    "bypass for a custom pass",
    "Give the pass a `uuid()` that changes when its code changes: make it an object of a subclass of "
    "`torch._inductor.custom_graph_pass.CustomGraphPass`, which has `__call__` and `uuid`.",
)
DETAILED = Cure(
    "miss without parts", 'Log the parts of the keys: TORCH_LOGS="+torch._functorch._aot_autograd.autograd_cache".'
)
ONE_FIRST = Cure(
    "processes that compile at once",
    "Let one process compile first, or use the same TORCHINDUCTOR_CACHE_DIR for all processes, on one file system.",
)
FOLDER = Cure(
    "entry that is gone",
    "Check that TORCHINDUCTOR_CACHE_DIR is the same in both runs, is kept between them and is writable.",
)
GUARDS = Cure(
    "entry for other sizes",
    "Mark the dimension as dynamic before the first call, so that one program serves all sizes.",
)
HIDDEN_SETTING = Cure(
    "setting of another type",
    "Use a value of the same type in both runs: the key has the pickled value; torch prints its text.",
)
HIDDEN = Cure(
    "difference that is not printed",
    "Look for what differs between the runs without being printed: the values of a constant tensor, an object "
    "that is created again, a function's code. Pass such tensors as inputs, and give objects stable contents.",
)
OFF = Cure(
    "caches that are switched off",
    "Remove that setting, or TORCHINDUCTOR_FORCE_DISABLE_CACHES from the environment: it is for debugging.",
)
CONSTANT = Cure(
    "miss for another number in the code",
    "The number is a constant of the graph, and so a part of the key. Pass it as a tensor, or use the same number.",
)
CODE = Cure(
    "miss for other code",
    "Different code needs a different program: this miss is correct, unless the code should have been the same.",
)
SHAPE = Cure(
    "miss for another shape",
    "Warm the cache with the same shapes, or mark the dimension as dynamic so that one entry serves all.",
)
INPUT = Cure(
    "miss for another input",
    "Pass similar inputs in both runs: dtype, layout, device and requires_grad are part of the key.",
)
SETTINGS = Cure(
    "miss for another setting",
    "Use the same settings in both runs; check where this one is set, in code or in the environment.",
)
VERSION = Cure(
    "miss for another version or machine",
    "Caches cannot be shared between versions of PyTorch or kinds of machines: warm up each of them once.",
)
PART = Cure("miss for another part", "If both runs use the same value here, the entry is found.")
FROM_CACHE = Cure("what aotviz's cache advises", "{advice}")
