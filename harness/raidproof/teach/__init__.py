"""Lessons: their files, their actions on real machines, questions, and the comparison of guess and measurement."""
