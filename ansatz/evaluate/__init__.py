"""How good a policy is: suites, estimators, confidence intervals."""
