"""`refold suite`: many references, each optimised and judged in a process of its own."""
