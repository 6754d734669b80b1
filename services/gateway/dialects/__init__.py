"""Other front ends' contracts over the same turns, each a pure fold of their frames."""
