"""Provider ``vagrant``: Vagrant creates the machines from boxes, by libvirt."""
