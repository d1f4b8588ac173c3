"""JobGraph: model, validation, compilation to tasks, specs of attempts. See model.py, validate.py, compile.py, specs.py."""
