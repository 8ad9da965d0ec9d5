"""The samplers as sessions use them: one module per sampler."""
