"""What `millrace doctor` looks at. It only reads, and says of each thing how it is and, where it is not well, what to do."""
