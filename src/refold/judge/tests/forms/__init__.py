"""Forms of call."""
