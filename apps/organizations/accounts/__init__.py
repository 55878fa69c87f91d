"""Accounts: sign-up, sign-in, second factors and passkeys of users; views, pages and e-mails."""
