"""The samplers as sessions use them: one module per sampler, and the choice that a request makes."""
