"""`refold explain --html`: a derivation as one page."""
