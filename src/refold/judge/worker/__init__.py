"""What runs beside the candidate, in its process."""
