"""Machines that exist: surveyed, used only where their owner has agreed, and left as they were found."""
