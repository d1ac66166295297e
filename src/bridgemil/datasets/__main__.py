"""``python -m bridgemil.datasets``: print the documentation page of the data sets."""

import sys

from bridgemil.datasets import page

sys.stdout.write(page())
