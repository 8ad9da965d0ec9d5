"""Figures for operators, in Prometheus' text format: what is counted, and what is read when somebody asks."""
