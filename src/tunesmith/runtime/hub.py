"""The hub of Hugging Face where no connection can be made: found out in seconds, once.

Its library tries each request again for 23 seconds, which is right for a download on a weak line. Where there is no
network at all, a run would spend that on each file it looks up, only to take what the cache holds or to fail.
"""

import logging
import socket
import threading
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

_PAUSES_SECONDS = (0.5, 1.5)
"""Between attempts to connect: a line that stumbles gets three."""

_MOST_SECONDS = 6.0
"""That all attempts together may take: where a firewall swallows what is sent, nothing comes back."""

_BELIEVED_SECONDS = 60.0
"""How long it is taken for granted that nothing can be reached; a notebook may get its network back."""


class _Reach:
    """What is known of the network."""

    def __init__(self) -> None:
        self.is_proven = False
        """Whether any connection was made. From then on what fails is a matter of the library's patience."""

        self.trouble = ""
        self.found_at = 0.0

    @property
    def is_lost(self) -> bool:
        """Whether a connection was tried a moment ago, in vain."""
        return bool(self.trouble) and time.monotonic() - self.found_at < _BELIEVED_SECONDS


_REACH = _Reach()


def watch_hub() -> None:
    """Have the first request of this process to the hub fail at once where no connection can be made at all.

    Its library then does what it does with `HF_HUB_OFFLINE`: what is in the cache is used. Call it before each use.
    """
    from huggingface_hub import get_session

    session = get_session()
    hooks = session.event_hooks
    if _check_reach not in hooks["request"]:
        session.event_hooks = {**hooks, "request": [*hooks["request"], _check_reach]}


def find_network_trouble() -> str | None:
    """Return why the hub cannot be reached, if that was found out a moment ago."""
    return _REACH.trouble if _REACH.is_lost else None


def _check_reach(request: Any) -> None:
    if _REACH.is_proven:
        return
    if not _REACH.is_lost:
        host, port = _find_peer(str(request.url))
        trouble = _try_to_connect(host, port)
        if trouble is None:
            _REACH.is_proven, _REACH.trouble = True, ""
            return
        _REACH.trouble, _REACH.found_at = f"{host} cannot be reached ({trouble})", time.monotonic()
        logger.warning("%s: only what is on this disk can be used.", _REACH.trouble)
    from huggingface_hub.errors import OfflineModeIsEnabled

    raise OfflineModeIsEnabled(_REACH.trouble)


def _find_peer(url: str) -> tuple[str, int]:
    """Return whom a request is sent to: its host, or the proxy of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not urllib.request.proxy_bypass(host):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or host, parts.port or (443 if parts.scheme == "https" else 80)


def _try_to_connect(host: str, port: int) -> str | None:
    """Return why no connection can be made, after a few attempts; `None` once there was one."""
    found: list[str | None] = []

    def attempt() -> None:
        trouble = ""
        for pause in (0.0, *_PAUSES_SECONDS):
            time.sleep(pause)
            try:
                socket.create_connection((host, port), timeout=_MOST_SECONDS).close()
            except OSError as error:
                trouble = error.strerror or str(error)
            else:
                found.append(None)
                return
        found.append(trouble)

    # In a thread, since looking up a name heeds no time-out.
    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(_MOST_SECONDS)
    return found[0] if found else f"no answer within {_MOST_SECONDS:g} s"
