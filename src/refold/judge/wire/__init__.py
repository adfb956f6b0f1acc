"""Processes and the bytes between them; nothing of models."""
