"""The view of saved tensors counts memory in which several of them lie once, and says whose it is."""

from __future__ import annotations

from pathlib import Path

import torch
from playwright.sync_api import Browser, expect

import aotviz
from aotviz.widgets.html import write_html


def program(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().tanh()
    first, second = x.cos().chunk(2)
    return (y.t() @ y).sum() + (first * second).sum()


def test_a_value_in_the_memory_of_another_says_so_and_is_not_counted_again(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    compiled = aotviz.compile(program, backend="eager", partition_fn="default_partition")
    compiled(torch.rand(64, 32, requires_grad=True)).backward()
    table = compiled.recording[0].saved_tensors
    shared = table[table.shares_with != ""].set_index("name")
    assert len(shared) == 3
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.goto(write_html(compiled.recording, tmp_path / "saved.html").as_uri())
    page.locator('[role=tab][data-view="saved"]').click()
    rows = page.locator(".saved-page tbody tr")
    expect(page.locator(".lead")).to_contain_text(f"{table.held_bytes.sum() / 1024:.1f} KiB in {len(table) - 1} values")
    expect(rows.locator(".chip", has_text="shared")).to_have_count(3)
    for name, owner in shared.shares_with.items():
        whose = rows.filter(has_text=str(name)).locator(f'[title^="This value is in the memory of {owner} ("]')
        expect(whose.first).to_have_text(f"in {owner}")
    expect(rows.filter(has_text="holds 8.00 KiB")).to_have_count(1)
    expect(rows.locator('[title^="This value is in the memory of x,"]')).to_have_text("in x")
    page.screenshot(path=screenshots / "saved-shared.png")
    page.close()
