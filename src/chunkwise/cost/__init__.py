"""What a step costs, in seconds and in bytes: arithmetic that the base install can do alone."""
