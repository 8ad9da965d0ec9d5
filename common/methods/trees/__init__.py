"""Answers by token trees that a small model grows and a large one verifies, on one side."""
