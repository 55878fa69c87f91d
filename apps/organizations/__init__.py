"""Users, organizations, memberships, projects and plans."""
