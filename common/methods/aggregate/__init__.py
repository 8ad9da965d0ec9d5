"""Two drafts of every token, one from each side's documents, aggregated: ahead of time, or one by one."""
