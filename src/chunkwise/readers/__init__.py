"""From what others wrote to facts: captures, logs of stock servers. No engine is imported."""
