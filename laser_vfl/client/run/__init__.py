"""One run after another: join, follow the views, resume."""
