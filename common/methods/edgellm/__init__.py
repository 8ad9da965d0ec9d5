"""EdgeLLM: a larger model of the device verifies trees of drafts."""
