"""What runs on the machine of a slot: host, Spark driver, attempts.

Standard library and PySpark only, and relative imports only, but for the TaskManager's side of it: `client` and `common/conf.py`.
A slot may run under the user's own Python. It is loaded under the name ``_millrace_slot``, so that a user's packages may be called
``services``, ``shared`` or ``tests``.
"""
