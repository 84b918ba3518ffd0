"""Reports about several stored runs, and their export."""
