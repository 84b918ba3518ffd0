"""What the clients do, and what they were told about it."""
