"""Storage: atomic files and locks, and artifacts (folders with one manifest of checksums)."""
