"""The one room that knows an operating system; where one lacks something, it says what instead.

It asks for what it needs and not for a system's name where it can, so that tests can take it away.
"""
