"""What was found, and the session that finds it."""
