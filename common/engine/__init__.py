"""The model's thread, with its jobs and passes."""
