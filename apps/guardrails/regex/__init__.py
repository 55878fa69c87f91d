"""Regular expressions in time linear in the text (RE2)."""
