"""How one token is drawn: race noise, truncation, quantisation and the aggregation kernels."""
