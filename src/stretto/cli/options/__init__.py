"""Options of commands: names, help texts and panels, one module for each thing they are about.

Defaults stand in the signatures of the commands; those of models are the defaults of the estimators.
"""
