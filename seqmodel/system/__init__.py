"""The only package that depends on the operating system; it provides fallbacks for what is missing.

If possible, it tests for a feature, not for a system's name, so that tests can remove the feature.
"""
