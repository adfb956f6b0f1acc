"""What is asked of the judge, and how its answer is shown."""
