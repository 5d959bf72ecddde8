"""A run as an ONNX graph."""
