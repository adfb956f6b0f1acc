"""Tests of what the candidate does to its process and its memory."""
