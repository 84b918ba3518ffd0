"""Provider ``hosts``: existing machines, restored after each run; their disks are used only after a confirmation."""
