"""The suite `real`: the default language model on text that people wrote."""
