"""The symmetric engine that the device daemon and the cloud daemon both run."""
