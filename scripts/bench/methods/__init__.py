"""Methods that draft and verify over an emulated link: two daemons, a labelled pair of models, every rate and delay."""
