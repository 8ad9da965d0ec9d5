"""Estimators of time and acceptance, the cost model, and the decisions made from them."""
