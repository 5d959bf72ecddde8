"""Music: piano-rolls."""
