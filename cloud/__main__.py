"""`python -m cloud`: the cloud daemon, which `dragon cloud` starts."""

from __future__ import annotations

import sys

from common.configuration.flags import flags_help, parse_flags
from common.daemon.start import one_line_errors
from common.process.files import keep_private
from common.process.machine import open_closed_streams


def main() -> None:
    """Runs the cloud daemon. Its flags are the settings of `cloud/settings.py`."""
    open_closed_streams()
    keep_private()
    with one_line_errors("dragon cloud"):
        from cloud.settings import CloudSettings
        from common.configuration.configuration import keep_caches, load_settings

        if {"-h", "--help"} & set(sys.argv[1:]):
            print(flags_help(CloudSettings))
            return
        file, overrides = parse_flags(CloudSettings, sys.argv[1:])
        settings = load_settings(CloudSettings, file, overrides)
        keep_caches(settings)

        from cloud.daemon import run_cloud

        run_cloud(settings)


if __name__ == "__main__":
    main()
