"""The long context alone: one side reads one document whole and answers. The baseline of rapid."""
