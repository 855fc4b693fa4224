"""Tables, models and parties that tests are made of."""
