"""Draft and verify: a small model on the device proposes tokens, a larger one in the cloud decides them."""
