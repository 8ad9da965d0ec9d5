"""`python -m cloud.gateway.librarian_process`: keeps the library of a cloud with remote workers.

It reads the watched folders, and publishes the library's changes. Settings are JSON on stdin. It ends with the
gateway.
"""

from __future__ import annotations

import json
import sys

from common.process.files import keep_private
from common.process.machine import open_closed_streams


def main() -> None:
    open_closed_streams()
    keep_private()
    from cloud.settings import CloudSettings
    from common.configuration.configuration import keep_caches
    from common.daemon.start import serving
    from common.process.lifetime import wait_until_stopped

    settings = CloudSettings(**json.load(sys.stdin))
    keep_caches(settings)
    with serving("dragon cloud (library)", settings) as (stack, _):
        from common.library.commands import open_library
        from common.library.publishing import Publisher
        from common.library.watching import FolderWatcher

        library = open_library(settings)
        stack.callback(library.close)
        for thread in (FolderWatcher(settings, library), Publisher(library)):
            stack.callback(thread.close)
        wait_until_stopped()


if __name__ == "__main__":
    main()
