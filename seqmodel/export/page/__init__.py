"""A run as a page that plays: the model itself, in WebAssembly, drawing as it plays."""
