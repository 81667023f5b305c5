"""`aotviz open`: one page, on this machine, for whoever has the address; and the figures beside it."""

from __future__ import annotations

import gzip
import http.client
import re
import threading
from urllib.parse import urlsplit

import pandas as pd
import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.reading.recording import Recording
from aotviz.widgets.server import SCRIPTS, Viewer
from tests.ui import fixture


@pytest.fixture
def viewer():
    made = Viewer(Recording(fixture.recording().data))
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.close()
    thread.join(10)
    assert not thread.is_alive()


def ask(viewer, path=None, method="GET", **headers):
    url = urlsplit(viewer.url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
    connection.request(method, url.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_address_opens_the_page(viewer):
    answer, body = ask(viewer)
    assert answer.status == 200
    assert b'id="workbench"' in body
    assert answer.headers["Referrer-Policy"] == "no-referrer", "the token must not leak to a linked site"
    assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("name", SCRIPTS)
def test_beside_the_page_are_the_scripts_that_it_may_need_later_and_nothing_else(viewer, name):
    path = urlsplit(viewer.url).path
    answer, body = ask(viewer, path + name)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body)
    for wrong in (
        f"/{name}",
        f"/wrong-token/{name}",
        f"{path}{name}?a=1",
        f"{path}../{name}",
        f"{path}core.js",
        f"{path}{name}.gz",
    ):
        assert ask(viewer, wrong)[0].status == 404
    assert ask(viewer, path + name, Host="evil.example:80")[0].status == 403


def test_the_page_may_talk_to_its_server_only(viewer):
    page = ask(viewer)[1].decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'; " in policy
    assert len(page) < 411_000, "what the first picture does not need comes later"


@pytest.mark.parametrize("path", ["/", "/index.html", "/../../etc/passwd", "/wrong-token/", "//"])
def test_nothing_else_is_served(viewer, path):
    answer, body = ask(viewer, path)
    assert answer.status == 404
    assert b"workbench" not in body


def test_a_longer_or_shorter_path_is_not_the_address(viewer):
    path = urlsplit(viewer.url).path
    for wrong in (path[:-1], path + "x", path + "?a=1"):
        assert ask(viewer, wrong)[0].status == 404


def test_a_foreign_name_for_this_machine_is_refused(viewer):
    assert ask(viewer, Host="evil.example:80")[0].status == 403


def test_only_get_is_answered(viewer):
    assert ask(viewer, method="POST")[0].status == 501


def test_each_viewer_has_an_address_of_its_own_on_the_loopback_interface(viewer):
    other = Viewer(Recording(fixture.recording().data))
    assert urlsplit(other.url).hostname == "127.0.0.1"
    assert urlsplit(other.url).path != urlsplit(viewer.url).path
    other._server.server_close()


def test_open_prints_the_address_and_ends_on_ctrl_c(tmp_path, monkeypatch, capsys):
    path = tmp_path / "made.aotviz"
    Recording(fixture.recording().data).save(path)

    def interrupted(_viewer):
        raise KeyboardInterrupt

    monkeypatch.setattr(Viewer, "serve", interrupted)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["open", str(path)]) == 0
    assert opened[0] in capsys.readouterr().out
    assert main(["open", str(path), "--no-browser"]) == 0
    assert len(opened) == 1


def test_a_port_that_is_taken_is_one_line(viewer, tmp_path, capsys):
    path = tmp_path / "made.aotviz"
    Recording(fixture.recording().data).save(path)
    assert main(["open", str(path), "--no-browser", "--port", str(urlsplit(viewer.url).port)]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.fixture(scope="module")
def training():
    torch._dynamo.reset()  # after which sizes are no symbols
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    compiled = aotviz.compile(model, backend="eager")
    compiled(torch.ones(2, 8)).sum().backward()
    return compiled.recording[0]


def test_the_areas_of_saved_tensors_are_their_bytes(training):
    (boxes,) = training.plot_saved_tensors().data
    sizes = dict(zip(boxes.ids, boxes.values, strict=True))
    total = int(training.saved_tensors.held_bytes.sum())
    assert sizes[boxes.ids[0]] == total > 0
    for box in boxes.ids:  # each group is the sum of what is in it
        inside = [sizes[i] for i, parent in zip(boxes.ids, boxes.parents, strict=True) if parent == box]
        assert not inside or sum(inside) == sizes[box]


def test_the_timeline_has_a_bar_for_each_stage(training):
    (bars,) = training.plot_timeline().data
    assert list(bars.x) == list(training.stages.elapsed_ms)
    assert list(bars.base) == list(training.stages.started_ms)


def test_names_in_a_figure_are_text_not_tags():
    from aotviz.recording import plots

    table = pd.DataFrame(
        [
            {
                "name": "<b>x</b>",
                "module": "a<i>",
                "saved_bytes": 8,
                "dtype": "f32",
                "shape": [2],
                "producer": "<a href='x'>",
                "why": "&",
                "donated": False,
                "why_donated": "<br>",
                "memory_of": "",
                "shares_with": "",
                "held_bytes": 8,
            }
        ]
    )
    figure = plots.saved_tensors(table, "<script>")
    for text in [figure.layout.title.text, *figure.data[0].labels]:
        assert "<" not in text
    assert "<a" not in figure.data[0].customdata[-1]
