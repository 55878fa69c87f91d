"""Problems of a deployment and how to fix them: one list of checks, read by the start, the doctor and health."""
