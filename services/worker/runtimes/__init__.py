"""Adapters of agent objects to `domain.runtime.Runtime`, one kind a module."""
