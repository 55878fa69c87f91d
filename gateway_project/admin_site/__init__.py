"""The operators' pages as a whole: the dashboard, the navigation, plain names, the groups of operators."""
