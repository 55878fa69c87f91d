"""HTTP in, HTTP out, a dozen lines each; never a decision."""
