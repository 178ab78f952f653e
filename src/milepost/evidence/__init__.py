"""What was observed about a run, and what follows from it."""
