"""One long document: read whole by the verifier and partly by the drafter (RAPID), or by one model alone."""
