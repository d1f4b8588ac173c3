"""JobGraph: model, validation, compilation. See model.py, validate.py, compile.py."""
