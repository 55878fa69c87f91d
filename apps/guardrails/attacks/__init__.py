"""Parts of the rules against attacks, one kind of attack each: they read more than the scanned text."""
