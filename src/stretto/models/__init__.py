"""Doors: scikit-learn estimators and the jobs behind them."""
