"""The storage stack of a server and its clients, layer by layer."""
