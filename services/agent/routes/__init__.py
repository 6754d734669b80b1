"""The internal HTTP API, one resource a file."""
