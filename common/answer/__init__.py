"""Common parts of all answers: request, prefix, driver, phase, patience, record, report."""
