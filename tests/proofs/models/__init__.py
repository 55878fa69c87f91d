"""The protocols that money depends on, each as a model of one page, and the checker that visits all of their states."""
