"""The stages of `layoutopt.optimize`: checks of its arguments, lifting, rewriting, diagnosis of invalid models, result."""
