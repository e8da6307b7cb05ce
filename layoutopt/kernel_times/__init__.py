"""Times of single kernels on this machine: kernels as models of their own, the store of their times, and prices from them."""
