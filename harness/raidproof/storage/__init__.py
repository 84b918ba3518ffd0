"""The storage stack of a server and its clients: array, file system, NFS server, mounts, links, kernel settings."""
