"""Makes the embedded demonstration model: world, tokenizer, training rows, training, evaluation, sample
libraries."""
