"""A run as a page that plays: the model itself, in JavaScript, drawing as it plays."""
