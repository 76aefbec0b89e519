"""What the dashboard and the pages have in common: header, footer, banners, actions on sessions."""
