"""Benchmarks: each suite prints tables, keeps raw samples as JSON and draws its figures."""
