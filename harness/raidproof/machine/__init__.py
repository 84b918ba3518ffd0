"""A computer of a lab: commands over SSH, its console, its power."""
