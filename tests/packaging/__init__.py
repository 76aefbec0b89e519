"""Tests of packages, manual pages and the package index's page."""
