"""The configuration, the task table and the contract: what the user wrote, checked and frozen."""
