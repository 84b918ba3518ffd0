"""What the clients do, and the acknowledgements that they receive."""
