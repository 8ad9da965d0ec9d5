"""RAPID: a drafter that reads passages of a long document, and a verifier that reads the document whole."""
