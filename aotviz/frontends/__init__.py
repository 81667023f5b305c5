"""What users call: `compile`, the backends of torch.compile, `aot_function` and its family, exports, single stages."""
