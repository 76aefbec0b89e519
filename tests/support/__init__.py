"""What several tests lean on."""
