"""Repositories: built over a live session, never committing, answering in domain types only."""
