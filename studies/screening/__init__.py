"""The study of screening: which objective finds most of few positive bags where hardly a false alarm is allowed."""
