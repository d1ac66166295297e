"""Learning: the objectives of Stage 1, and the loops that train windows, bags and Stage 1 encoders.

Nothing here ever receives a test subject: the loops take training and validation windows and return a model.
"""
