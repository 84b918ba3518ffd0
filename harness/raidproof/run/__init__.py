"""What carries out a crash test, a plan, a comparison, a demo."""
