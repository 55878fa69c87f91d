"""Every reader of outside bytes, fed with what nobody would send."""
