"""What to do where the ranks of a job differ."""

from __future__ import annotations

from aotviz.explain.cures.registry import Cure

HANG = Cure(
    "ranks with other collectives",
    "Ranks that do not run the same collectives in the same order hang or mix up their data. Make the "
    "condition that selects them the same on all ranks, or take the collective out of the condition, so that all ranks "
    "run it.",
)
SKIPPED = Cure(
    "rank that skips a collective",
    "Ranks that do not run the same collectives in the same order hang or mix up their data. Run the collective on all "
    "ranks: a rank that has nothing for it takes a neutral tensor in place of None, such as zeros of the usual shape. "
    "Not an empty tensor: its mean is nan.",
)
ORDER = Cure(
    "ranks in another order",
    "Ranks that run graphs with collectives in a different order hang or mix up their data. Call the compiled "
    "functions in the same order on all ranks.",
)
ORDER_UNCACHED = Cure(
    "ranks whose order is uncertain", "Run again with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 to be sure."
)
SLOW = Cure(
    "slow rank",
    "All ranks wait for the slowest at the next collective. Give the ranks inputs of about the same size.",
)
SAME = Cure(
    "ranks that compiled other programs",
    "Give all ranks inputs with the same properties, or mark what varies as dynamic before the first call.",
)
CONDITION = Cure(
    "ranks that branch on a value of their own",
    "Let all ranks compile the same program: give `{name}` the same value on all of them, or take what only some ranks "
    "do, with its condition, out of the compiled function, and do it before or after the call.",
)
SOME_BREAK = Cure(
    "line that only some ranks reach",
    "Let all ranks compile the same program: take this line, with its condition, out of the compiled function, or let "
    "all ranks reach it. A setting that only avoids the graph break leaves the programs of the ranks different.",
)
CALLED = Cure(
    "ranks that call another function",
    "Call {function} on all ranks, or on none: make the condition that selects it the same on all ranks.",
)
ONE_CACHE = Cure(
    "ranks with other caches",
    "Let all ranks read one cache, a shared folder or server that holds the entries before the job starts, or none. A "
    "rank that found its programs waits at the next collective, and a long compilation may take longer than the "
    "timeout of the process group.",
)
ALONE = Cure(
    "function that one rank compiles while the others wait",
    "Where one rank alone runs something, such as a validation, the others wait for it in their next collective, and "
    "compiling may take longer than the timeout of their process group. Call {function} once on all ranks before they "
    "wait for each other, or give the group a longer timeout: "
    "`torch.distributed.new_group(timeout=timedelta(minutes=30))`.",
)
