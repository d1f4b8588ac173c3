"""What a client checks before it submits: reading a graph's file, its SQL, its files. Not pure; no service needs it."""
