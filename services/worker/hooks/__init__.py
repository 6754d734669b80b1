"""Hooks: what runs before and after an agent, in line or as durable jobs in the background."""
