"""Model providers: scripted, and replay of what a model once said. They keep no state that a crash could lose."""
