"""How long the candidate takes beside eager."""
