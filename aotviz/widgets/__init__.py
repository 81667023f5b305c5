"""Show a recording as a notebook widget, an HTML page, or a text summary. This package does not import torch."""
