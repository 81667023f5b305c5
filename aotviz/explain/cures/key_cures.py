"""What to do where an ingredient of a key of aotviz's cache differs from that of the nearest key."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure


def _ingredient(name: str, does: str) -> Cure:
    return Cure(f"other {name} than in the cache", does)


UPGRADED = _ingredient(
    "version", "Nothing to do after an upgrade: the first run with another version fills the cache again."
)
MACHINE = _ingredient(
    "kind of machine", "Let each kind of machine fill the cache once: a program is compiled for one kind."
)
CHANGED = _ingredient("code", "Nothing to do if you changed the code: other code needs another program.")
SAME_VALUE = _ingredient("value of a setting", "Set {name} to the same value before both runs.")
SAME_SETTINGS = _ingredient("settings", "Set `{module}` in the same way before both runs.")
SAME_PART = _ingredient("ingredient", "Make `{name}` the same in both runs.")
SYMBOLS = _ingredient(
    "symbols", "Mark the same dimensions as dynamic, with the same bounds, before the first call of both runs."
)
MEMORY = _ingredient(
    "memory layout",
    "Pass tensors that share memory in the same way in both runs, or clone the one that may overlap.",
)
OPTIONS = _ingredient("options", "Pass the same `options` in both runs.")
BACKEND = _ingredient("backend", "Compile with the same backend and the same partitioner in both runs.")
GRAD_MODE = _ingredient(
    "grad mode",
    "Call it in the same grad mode in both runs: training, `no_grad` and `inference_mode` need different programs.",
)
AUTOCAST = _ingredient("autocast", "Call it under the same `torch.autocast` in both runs.")
DETERMINISM = _ingredient(
    "determinism", "Call `torch.use_deterministic_algorithms` with the same arguments before both runs."
)
DEFAULTS = _ingredient("defaults", "Set the same default dtype and default device before both runs.")
METHODS = _ingredient("methods of tensors", "Give `torch.Tensor` the same methods before both runs.")
PRECISION = _ingredient(
    "precision",
    "Set the same precision of matrix products (`torch.set_float32_matmul_precision`, `torch.backends`) before both "
    "runs.",
)
HOOKS = _ingredient("saved-tensor hooks", "Use the same hooks on saved tensors in both runs, or none.")
FIRST_CALL = _ingredient(
    "first call", "Nothing to do: under DistributedDataParallel the first call is with fake tensors."
)
THREADS = _ingredient(
    "threads", "Set the same number of threads in both runs (`torch.set_num_threads`, `OMP_NUM_THREADS`)."
)
PROCESSES = _ingredient(
    "processes",
    "Start the same number of processes in both runs: a program with collectives is for one world size.",
)
ENVIRONMENT = _ingredient("environment", "Set the same environment variables before both runs.")
SAME_FACT = _ingredient("dtype or mesh of an input", "Pass {name} with the same {fact} in both runs.")
OF_INPUT = {  # the fact of one input that differs
    "dtype": SAME_FACT,
    "shape": _ingredient(
        "shape of an input",
        "Pass {name} with the same sizes, or mark the dimension as dynamic before the first call, so that one program "
        "serves all sizes.",
    ),
    "stride": _ingredient(
        "strides of an input", "Pass {name} with the same strides in both runs, e.g. by `.contiguous()`."
    ),
    "offset": _ingredient(
        "offset of an input", "Pass {name} at the same place of its storage in both runs, e.g. by `.clone()`."
    ),
    "device": _ingredient("device of an input", "Pass {name} on the same device in both runs."),
    "mesh": SAME_FACT,
    "requires_grad": _ingredient(
        "requires_grad of an input", "Pass {name} with the same `requires_grad` in both runs."
    ),
    "kind": _ingredient(
        "kind of an input",
        "Pass {name} as the same kind of tensor in both runs: its class, `requires_grad`, and whether it is a view.",
    ),
}
