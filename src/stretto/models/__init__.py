"""scikit-learn estimators and the jobs that they run."""
