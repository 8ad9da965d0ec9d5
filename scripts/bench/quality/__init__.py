"""Quality against documents per side (DRAGON Fig. 5): perplexity of real text, exact match on the demo world."""
