"""The reference as truth: eager, and in float64."""
