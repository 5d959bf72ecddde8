"""Running compiled kernels: threads, buffers, arguments."""
