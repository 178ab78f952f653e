"""The runner: supervises one shard in one allocation, from lease to marker."""
