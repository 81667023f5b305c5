"""What a recording looks like: a notebook widget, an HTML page, a summary in text. Never imports torch."""
