"""Adapting a chat to a target that lacks something: emulate it, drop it with a note, or refuse the request."""
