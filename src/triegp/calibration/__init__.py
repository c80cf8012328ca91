"""Honest predictions of new observations: a trend, local noise and tails, learned by leaving out.

A model, mixture or forest, predicts every training row from the others. What is learned from these
residuals does not depend on the kind of model.
"""
