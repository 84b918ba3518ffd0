"""The checks of crash tests and crash states: one file for each subject."""
