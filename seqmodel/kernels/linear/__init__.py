"""Matrix products and what goes before and after them."""
