"""Helpers that tests share: tiny data, small models, reference implementations."""
