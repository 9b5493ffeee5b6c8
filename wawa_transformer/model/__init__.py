"""The Transformer of Vaswani et al. 2017, figure 1, in plain torch."""
