"""A compiled program as a Python file of its own: `compiled.to_python()`."""
