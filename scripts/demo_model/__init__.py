"""Makes the embedded demonstration model: world, tokenizer, training rows, training, sample libraries."""
