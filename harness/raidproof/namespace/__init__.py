"""The namespaces in which one lab lives and dies: its network, its processes and their common parent."""

from raidproof.namespace.namespace import Enclosure, Process, Traffic

__all__ = ["Enclosure", "Process", "Traffic"]
