"""The thread that owns the model: what each pass feeds, for whom, and what becomes of the logits."""
