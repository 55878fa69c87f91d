"""The console's pages, a module for each subject: read the request, act or query, render."""
