"""Loads the shared fixtures."""

pytest_plugins = ["tests.support.fixtures"]
