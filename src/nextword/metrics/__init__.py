"""Metrics: pure functions of gold values and predictions, and confidence intervals for them."""
