"""``python -m bridgemil``."""

from bridgemil.cli import main

main()
