"""Provider ``qemu``: virtual PCs."""
