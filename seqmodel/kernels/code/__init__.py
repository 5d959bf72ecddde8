"""Writing LLVM instructions from Python, and compiling them."""
