"""Comparing one way of running a program with another: graphs, and all that a caller can see."""
