"""OAuth: programs that a person signs in: registration, consent, access tokens, and API keys given by a browser."""
