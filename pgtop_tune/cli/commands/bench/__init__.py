"""`pgtop-tune bench`: loads prepared and run without a screen."""
