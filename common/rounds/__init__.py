"""Draft-and-verify answers: the drafter's and the verifier's state machine, and what a method plugs into them. Pure."""
