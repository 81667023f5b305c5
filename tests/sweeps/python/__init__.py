"""What a compiled program reads from Python, changed between two calls: `make sweep-python`."""
