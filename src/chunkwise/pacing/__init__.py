"""What to run next: pure decisions over plain data, no vLLM, no clock of its own."""
