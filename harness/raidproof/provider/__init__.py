"""The ways in which machines come to be, and the registry of them."""
