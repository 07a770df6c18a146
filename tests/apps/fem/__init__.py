"""Tests of finite elements on tetrahedra."""
