"""A run of music as a page that plays: the model itself, in JavaScript, drawing as it plays."""
