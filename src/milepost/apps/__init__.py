"""Adapters: what milepost must know of an application, read from YAML."""
