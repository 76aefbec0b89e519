"""Who looks, and how often: the live source of frames."""
