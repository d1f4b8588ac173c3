"""What carries out a TaskManager's effects: its slots, with what they fetch before an attempt and keep after it."""
