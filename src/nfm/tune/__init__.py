"""Find noise levels, alpha and sites on validation examples: clean and robust accuracy, both at once."""
