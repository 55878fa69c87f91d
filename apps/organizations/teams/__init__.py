"""Teams of an organization's members and projects, their leads, and service accounts, which own keys for programs."""
