"""Noisy Feature Mixup inside any PyTorch network."""
