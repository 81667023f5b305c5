"""The whole backward of a step, captured as one graph (SYSTEM.md F1-F4)."""
