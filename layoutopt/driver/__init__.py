"""The steps of `layoutopt.optimize`: checks of its arguments, the judgement of models at fault, and its result."""
