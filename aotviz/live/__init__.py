"""Show what a running process compiles: `aotviz.watch`, and the kernel's side of JupyterLab's live panel."""
