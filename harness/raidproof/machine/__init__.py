"""A machine of a lab: commands over SSH, console, power."""
