"""labkit: a notebook-driven research workbench for ML systems. Importing it loads nothing heavy."""

__version__ = "0.1.0"
