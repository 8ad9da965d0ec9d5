"""Parts of every answer, whatever its method: request, prefix, driver, phase, patience, record, report."""
