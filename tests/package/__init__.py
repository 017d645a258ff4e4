"""The package as its users get it: a wheel, installed into environments of their own."""
