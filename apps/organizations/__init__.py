"""Who belongs to what, and what a plan allows: users, organizations, memberships, projects."""
