"""Arrays, pandas tables and statsmodels models as arguments, and results as pandas tables."""
