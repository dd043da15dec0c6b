"""`FactorizationMachine`: parameters, input, fitting, prediction."""
