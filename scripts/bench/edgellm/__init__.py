"""Answers of a target that is larger than its memory, by how drafts for it are made."""
