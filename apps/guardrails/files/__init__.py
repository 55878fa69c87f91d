"""Files: what a file is by its content (MIME sniffing)."""
