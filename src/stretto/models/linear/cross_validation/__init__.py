"""Linear models whose penalty is chosen by cross-validation: folds, paths, scores, and the last fit."""
