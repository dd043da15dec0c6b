"""Run a planned step: devices, host buffers, generated code, CUDA graphs, optimizers."""
