"""One long document: read whole and in part (RAPID), or by one model alone."""
