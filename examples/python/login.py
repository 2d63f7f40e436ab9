"""Shared by RBMQ's examples: the login that the environment describes."""

import os


def login_of_environment():
    """A token, or a user and a password, or nothing, for a broker that lets everybody in."""
    names = {"token": "RBMQ_TOKEN", "user": "RBMQ_USER", "password": "RBMQ_PASSWORD"}
    return {option: os.environ[name] for option, name in names.items() if name in os.environ}
