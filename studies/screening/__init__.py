"""The study of screening: which objective finds most positive bags if few are positive and few false alarms allowed."""
