"""Use of fitted factors: recommendations, similar rows, explanations, plain arrays, and a light class for servers."""
