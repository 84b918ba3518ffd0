"""Whether the copies or the parity of an array agree with its data in a crash state."""
