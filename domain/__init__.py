"""Turnlog's domain: ids, events, commands, decisions and folds; pure functions over the standard library and
msgspec."""
