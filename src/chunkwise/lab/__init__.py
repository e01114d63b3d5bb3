"""Measured work: real engines started, driven and stopped by us."""
