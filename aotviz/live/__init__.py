"""What a running process compiles: watching torch.compile, and the kernel's side of JupyterLab's live panel."""
