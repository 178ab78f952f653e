"""A job with checkpoints and interruptions, played many times at once: all in numpy."""
