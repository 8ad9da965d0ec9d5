"""A cloud of several processes behind one address: a gateway with the keys, workers with the models."""
