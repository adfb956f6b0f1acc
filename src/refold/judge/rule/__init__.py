"""The one rule by which every tensor is compared; it knows no process."""
