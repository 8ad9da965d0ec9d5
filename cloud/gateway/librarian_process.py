"""`python -m cloud.gateway.librarian_process`: keeps the library of a cloud whose workers are on other machines.

It reads the watched folders, as no worker does, and publishes what it and others make of the library. Its settings are
JSON on stdin. It ends with the gateway, however that ends.
"""

from __future__ import annotations

import json
import sys

from common.process.private_files import keep_private


def main() -> None:
    """Keep the library until told to stop."""
    keep_private()
    from cloud.settings import CloudSettings
    from common.configuration.caches import keep_caches
    from common.daemon.daemon import serving
    from common.process.stopping import until_told

    settings = CloudSettings(**json.load(sys.stdin))
    keep_caches(settings)
    with serving("dragon cloud (library)", settings) as (stack, _):
        from common.library.embedder import SentenceTransformerEmbedder
        from common.library.library import Library
        from common.library.publishing import Publisher
        from common.library.watching import FolderWatcher

        embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device, settings.embedder_dtype)
        library = Library(settings.library, embedder, approximate_from=settings.approximate_from, kind=settings.search)
        stack.callback(library.close)
        for thread in (FolderWatcher(settings, library), Publisher(library)):
            stack.callback(thread.close)
        until_told()


if __name__ == "__main__":
    main()
