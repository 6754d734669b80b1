"""Executes one claimed turn: pulls a runtime's frames, turns them into facts, writes them under the claim's fence."""
