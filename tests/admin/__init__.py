"""The admin, over every app."""
