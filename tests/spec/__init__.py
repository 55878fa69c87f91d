"""One file per section of the specification."""
