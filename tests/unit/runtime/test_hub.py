import socket
import time

import huggingface_hub.constants
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from tunesmith.runtime import hub
from tunesmith.runtime.hub import find_network_trouble, watch_hub


@pytest.fixture
def reach(monkeypatch):
    """Forget what is known of the network, let requests out, and do not pause."""
    monkeypatch.setattr(hub, "_REACH", hub._Reach())
    monkeypatch.setattr(hub, "_PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(huggingface_hub.constants, "is_offline_mode", lambda: False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@pytest.fixture
def connections(monkeypatch):
    """Stand in for the network; returns who was called, and a function that sets whether anyone answers."""
    called, answers = [], []

    def connect(peer, timeout):
        called.append(peer)
        if not answers:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.socket()

    monkeypatch.setattr(hub.socket, "create_connection", connect)
    return called, answers


def ask(address="https://huggingface.co/org/name/resolve/main/config.json"):
    watch_hub()
    (check,) = [hook for hook in huggingface_hub.get_session().event_hooks["request"] if hook is hub._check_reach]
    check(huggingface_hub.get_session().build_request("HEAD", address))


def test_where_no_connection_can_be_made_the_first_request_says_so_and_the_next_do_not_try(reach, connections, caplog):
    called, _ = connections
    for _ in range(3):
        with pytest.raises(OfflineModeIsEnabled, match=r"huggingface\.co cannot be reached \(Connection refused\)"):
            ask()
    assert called == [("huggingface.co", 443)] * 3  # attempts of the first request
    assert caplog.text.count("only what is on this disk can be used") == 1
    assert find_network_trouble() == "huggingface.co cannot be reached (Connection refused)"


def test_the_library_stops_at_once(reach, connections):
    watch_hub()
    started = time.monotonic()
    with pytest.raises(OfflineModeIsEnabled):
        huggingface_hub.HfApi().model_info("org/name")
    assert time.monotonic() - started < 1


def test_once_reached_requests_are_left_to_the_patience_of_the_library(reach, connections):
    called, answers = connections
    answers.append(True)
    ask()
    answers.clear()
    ask()
    ask("https://elsewhere.co/x")
    assert len(called) == 1
    assert find_network_trouble() is None


def test_a_line_that_stumbles_is_tried_again(reach, connections, monkeypatch):
    called, answers = connections
    monkeypatch.setattr(hub.time, "sleep", lambda seconds: answers.append(True) if called else None)
    ask()
    assert len(called) == 2


def test_a_network_that_comes_back_is_found(reach, connections, monkeypatch):
    _, answers = connections
    with pytest.raises(OfflineModeIsEnabled):
        ask()
    answers.append(True)
    monkeypatch.setattr(hub, "_BELIEVED_SECONDS", 0.0)
    assert find_network_trouble() is None
    ask()


def test_a_firewall_that_swallows_everything_is_waited_for_a_few_seconds(reach, monkeypatch):
    monkeypatch.setattr(hub, "_MOST_SECONDS", 0.02)
    monkeypatch.setattr(hub.socket, "create_connection", lambda peer, timeout: time.sleep(0.2) or socket.socket())
    with pytest.raises(OfflineModeIsEnabled, match=r"no answer within 0\.02 s"):
        ask()


@pytest.mark.parametrize(
    ("variables", "address", "peer"),
    [
        ({}, "http://mirror.local:8080/x", ("mirror.local", 8080)),
        ({}, "http://mirror.local/x", ("mirror.local", 80)),
        ({"https_proxy": "http://proxy.local:3128"}, "https://huggingface.co/x", ("proxy.local", 3128)),
        ({"https_proxy": "proxy.local:3128"}, "https://huggingface.co/x", ("proxy.local", 3128)),
        ({"all_proxy": "socks5://proxy.local:1080"}, "https://huggingface.co/x", ("proxy.local", 1080)),
        (
            {"https_proxy": "http://proxy.local:3128", "no_proxy": "mirror.local"},
            "https://mirror.local/x",
            ("mirror.local", 443),
        ),
    ],
)
def test_the_one_who_is_called_is_the_mirror_or_the_proxy(reach, monkeypatch, variables, address, peer):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub._find_peer(address) == peer
