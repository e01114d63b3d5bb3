"""vLLM's own scheduler on a virtual clock: what would happen, in seconds that nobody waits."""
