"""What is not a network: the floor that stands beside every deep method."""
