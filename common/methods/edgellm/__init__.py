"""EdgeLLM: trees of drafts that a larger model of the device verifies."""
