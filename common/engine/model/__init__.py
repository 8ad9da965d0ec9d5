"""Models and tokenizers: loading, checks, passes and the decoder."""
