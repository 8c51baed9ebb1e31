"""APScheduler: which sweep fires when. Every tick is idempotent, so any number of schedulers may run at once."""
