"""Provider ``uml``: machines that are processes."""
