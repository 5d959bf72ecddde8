"""Matrix products and the packing, sums and sparse forms around them."""
