"""One long document (RAPID): read whole by the verifier and in part by the drafter; or by one model alone."""
