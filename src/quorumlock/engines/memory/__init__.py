"""A node without a server: what simulations run on."""
