"""What writes the generated pages of docs/; `make docs` runs all of it."""
