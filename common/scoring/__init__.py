"""Document weights R(d, x_<t): how much each document counts at each position."""
