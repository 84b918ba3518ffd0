"""The software that machines boot: kernels and images, and the cache of built artefacts."""
