"""The suite `sessions`: what one cloud yields to many devices at a time."""
