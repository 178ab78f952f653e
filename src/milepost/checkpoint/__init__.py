"""Checkpoints: numbered, verified snapshots of a computation; see docs/formats-checkpoint.md.

Bytes come in through `Checkpointer` (arrays of a live process) or `CheckpointStore.commit_files`
(files an application wrote itself) and go out through `restore`.
"""
