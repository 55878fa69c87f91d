"""Pages: base classes and number formats of the admin and the console."""
