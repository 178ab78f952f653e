"""Stands here so that pytest puts this folder on the path: tests may import `helpers`."""
