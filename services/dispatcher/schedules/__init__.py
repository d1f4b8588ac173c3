"""Schedules: their times, how they stand in etcd, and the thread of the leader that submits what is due."""
