"""Real daemons: started, watched and ended."""
