"""What Stage 1 minimises."""
