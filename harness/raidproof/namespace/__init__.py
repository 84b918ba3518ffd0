"""The namespaces that confine one lab: its network, its processes and their common parent."""

from raidproof.namespace.namespace import Namespace, Process, Traffic

__all__ = ["Namespace", "Process", "Traffic"]
