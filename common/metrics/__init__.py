"""Metrics for operators in Prometheus' text format, counted or read on demand."""
