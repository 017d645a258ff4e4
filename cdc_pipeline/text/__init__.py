"""Text from outside: names, messages and literals, so that no second language reads them."""
