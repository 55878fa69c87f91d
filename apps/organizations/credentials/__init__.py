"""Credentials of users: passwords, sessions, passkeys, one-time codes, tokens in e-mails."""
