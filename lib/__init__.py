"""Collectors, power-log parser, clock, phases, formulas and report pieces of tinymoe."""
