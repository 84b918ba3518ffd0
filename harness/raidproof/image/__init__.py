"""What machines boot: kernels, user space, boxes, and the cache of what has been built."""
