"""The planner: pure functions from measurements and prices to interval, shard size and cost.

Same inputs, same bytes: no clock, no files, no environment below this package.
"""
