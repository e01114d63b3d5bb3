"""What a step costs, in bytes: arithmetic on a model's shape, with the base install alone."""
