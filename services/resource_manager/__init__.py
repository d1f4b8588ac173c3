"""The ResourceManager: TaskManagers, their slots, and who gets one."""
