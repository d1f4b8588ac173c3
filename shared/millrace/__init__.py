"""Millrace runs PySpark jobs on a cluster whose control services may be killed at any moment."""

__version__ = "0.1.0"
