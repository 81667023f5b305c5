"""The data of a recording: its wire format, files, tables, graphs and texts. This package does not import torch."""
