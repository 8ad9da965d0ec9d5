"""The suite `rapid`: long contexts that are drafted from a part of themselves."""
