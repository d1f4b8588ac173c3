"""The web service: folds public facts into tables and answers read-only JSON. It is on the way of no command."""
