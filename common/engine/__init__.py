"""The thread that owns the model, with its jobs and passes."""
