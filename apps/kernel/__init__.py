"""Words that every domain shares. Imports nothing of the other apps; a closed set."""
