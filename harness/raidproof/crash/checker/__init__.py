"""Machines that bring crash states up and read them."""
