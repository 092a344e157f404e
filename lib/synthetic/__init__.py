"""A whole run written from a model of the machine, as raw artifacts: what goes in must come out of the analysis.

Nothing here is measured, and nothing here is shared with the analysis: it may not import a module that reads artifacts
or computes a metric, so that an error in one cannot hide in the other.
"""
