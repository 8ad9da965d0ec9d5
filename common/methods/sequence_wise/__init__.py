"""Two whole answers, one from each side's documents, of which one is taken (DRDG/SW, §7.1)."""
