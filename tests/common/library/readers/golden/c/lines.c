import os


def pour():
    pass
