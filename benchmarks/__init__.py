"""How fast aotviz is, beside torch's own AOTAutograd in the same process: `python -m benchmarks`."""
