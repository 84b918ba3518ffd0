"""Crash states: which ones a recording allows, and the content of the disks in each."""
