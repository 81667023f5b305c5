"""The whole backward of a step, captured as one graph."""
