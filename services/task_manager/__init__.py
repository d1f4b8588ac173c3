"""The TaskManager: slots on warm Spark drivers, and the attempts that run in them."""
