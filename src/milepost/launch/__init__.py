"""Before the work: the smoke test that gates and calibrates it, and the frozen shard table."""
