"""The product, clause by clause."""
