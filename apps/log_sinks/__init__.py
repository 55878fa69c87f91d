"""Log sinks: an organization's own receivers of its log, and the delivery of each row to them at least once."""
