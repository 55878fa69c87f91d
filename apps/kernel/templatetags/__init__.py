"""Tags and filters that templates of every app may use."""
