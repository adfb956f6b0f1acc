"""Tests of single calls."""
