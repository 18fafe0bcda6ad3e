"""Studies on images and volumes."""
