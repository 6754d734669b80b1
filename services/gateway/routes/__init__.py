"""Routes of the gateway, one family a module."""
