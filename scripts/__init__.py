"""Training, benchmarks and demonstrations, run from a checkout."""
