"""Document weights R(d, x_<t) at each position."""
