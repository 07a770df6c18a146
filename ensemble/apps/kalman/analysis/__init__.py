"""What is done with a model and its filters: simulation, posterior draws, forecasts, maximum likelihood."""
