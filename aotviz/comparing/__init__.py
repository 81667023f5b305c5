"""Compare two ways of running a program: their graphs, and everything that a caller can see."""
