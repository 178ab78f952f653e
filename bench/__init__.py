"""Side-by-side measurements; `scripts/bench` runs them and writes docs/benchmarks.md."""
