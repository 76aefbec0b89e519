"""Parts that the dashboard and the pages share: header, footer, banners, actions on sessions."""
