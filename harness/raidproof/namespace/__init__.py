"""The namespaces that confine one lab: its network, its processes and their common parent."""

from raidproof.namespace.namespace import Enclosure, Process, Traffic

__all__ = ["Enclosure", "Process", "Traffic"]
