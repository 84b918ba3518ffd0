"""Existing machines: surveyed, used only with their owner's consent, and restored after use."""
