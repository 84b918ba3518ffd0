"""The providers, which make the machines of a lab, and their registry."""
