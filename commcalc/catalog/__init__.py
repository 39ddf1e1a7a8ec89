"""Presets and job files: find, load, validate, say where each value came from."""
