"""Benchmarks with labeled texts, read from their official files: GLUE, NLI, sentiment and topics, multiple choice."""
