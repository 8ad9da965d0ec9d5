"""Coupled drafting: both sides draw by the race on shared noise, so that tokens alone travel."""
