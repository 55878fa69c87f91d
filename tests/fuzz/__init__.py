"""Every reader of outside bytes, fed with input that no client would send."""
