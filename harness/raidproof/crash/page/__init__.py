"""The crash page: a page on which a reader moves the power cut along a write log, without a machine."""
