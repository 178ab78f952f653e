"""A Slurm cluster of four nodes on one machine. Standard library only; entry: scripts/slurm-testbed."""
