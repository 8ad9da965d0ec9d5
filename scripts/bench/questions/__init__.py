"""The suite `questions`: private notes and public texts, asked about, and the answers judged as a person would."""
