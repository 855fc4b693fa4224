"""The benchmarks behind `laser-vfl bench`."""
