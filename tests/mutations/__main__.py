"""``python -m tests.mutations``: print tests/mutations/README.md."""

from tests.mutations.rules import page

print(page(), end="")
