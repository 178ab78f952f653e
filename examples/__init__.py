"""The workloads of the demo configuration; each is also a command of its own."""
