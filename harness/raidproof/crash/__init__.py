"""The crashes that one recorded run could have had: which there are, what each leaves, and what that costs."""
