"""Backwards of every form."""
