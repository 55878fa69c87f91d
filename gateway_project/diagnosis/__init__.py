"""What is wrong with a deployment and how to fix it: one list of checks, read by the start, the doctor and health."""
