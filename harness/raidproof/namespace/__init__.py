"""The Linux namespaces of one lab, which isolate its network and processes, and the keeper, process 1 in them."""

from raidproof.namespace.namespace import Namespace, Process, Traffic

__all__ = ["Namespace", "Process", "Traffic"]
