"""From what others wrote to facts: captures of a live server. No engine is imported."""
