"""The parts of the compile time, by the names of torch's events and of our own stages."""

from __future__ import annotations

import re

UNKNOWN = "not accounted for"
CAPTURE, GUARDS, BACKEND, AOT, KERNELS = "capture by Dynamo", "guards", "backend", "AOTAutograd", "kernels"
PARTS = (  # of the time: what the names of events and stages begin with, or have in them
    (
        KERNELS,
        re.compile(r"inductor|triton|compile_file|async_compile|code_?gen|scheduler|graphlowering|^lower|kernel"),
    ),
    (AOT, re.compile(r"aot|joint|partition|min_cut|backward_compile|_compile_bw")),
    (BACKEND, re.compile(r"backend_compile|call_user_compiler")),
    (GUARDS, re.compile(r"guard")),
    (CAPTURE, re.compile(r"entire_frame_compile|bytecode|dynamo|convert_frame|pgo")),
)
ORDER = (CAPTURE, BACKEND, AOT, GUARDS, KERNELS, UNKNOWN)


def part_of(name: str) -> str:
    """The part that an event or stage belongs to; "" if its name says none.

    >>> part_of("Scheduler.codegen"), part_of("aot_trace_joint_graph"), part_of("gc")
    ('kernels', 'AOTAutograd', '')
    """
    return next((part for part, pattern in PARTS if pattern.search(name.lower())), "")
