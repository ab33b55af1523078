"""The page of explore in headless Chromium, as somebody who has never seen it uses it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
for package in ("starlette", "uvicorn", "jinja2", "matplotlib", "playwright"):
    pytest.importorskip(package)
from playwright.sync_api import expect, sync_playwright

from specmodel.show.web.pages import SCENARIOS

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]
WIDTHS = (400, 1280)
PAGES = [
    *SCENARIOS.values(),
    "target=qwen3-30b-a3b&hardware=h200_sxm&other_hardware=b200&view=schedule",
    "target=gpt-oss-20b&hardware=b200&drafter=eagle3&view=schedule",
    "target=mixtral-8x7b&hardware=h100_sxm&tpot_target=x",
    "target=mixtral-8x7b&hardware=h100_sxm",
]
AXE = Path(os.environ.get("SPECMODEL_AXE", "node_modules/axe-core/axe.min.js"))
OPEN = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
FAULTS = Path(__file__).with_name("faults.js").read_text("utf-8")


@pytest.fixture(scope="module")
def server():
    words = [sys.executable, "-m", "specmodel", "explore", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        yield served
        served.terminate()


@pytest.fixture(scope="module")
def address(server):
    return re.search(r"http://\S+", server.stdout.readline())[0]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, url, width=1280, **how):
    """A page of its own, that has loaded."""
    page = browser.new_context(viewport={"width": width, "height": 900}, **how).new_page()
    page.goto(url)
    return page


def redrawn(page):
    """Wait until an answer is there."""
    expect(page.locator("#answer")).not_to_have_attribute("aria-busy", "true")


def test_what_is_chosen_is_shared_by_its_address(browser, address):
    page = opened(browser, address)
    page.get_by_label("Model", exact=True).fill("qwen3.5-397b-a17b")
    page.get_by_label("GPU", exact=True).fill("h200_sxm")
    page.get_by_label("How many GPUs", exact=True).fill("8")
    page.locator("#rate").focus()
    before = page.locator(".verdict").text_content()
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    page.wait_for_url("**acceptance=rate**")
    redrawn(page)
    expect(page.locator(".verdict")).not_to_have_text(before)
    assert page.evaluate("document.activeElement.id") == "rate"
    assert "num_gpus=8" in page.url
    verdict = page.locator(".verdict").text_content()
    assert page.locator("#heard").text_content() == page.locator(".verdict h2").text_content()
    other = opened(browser, page.url)
    assert other.locator("#answer").inner_text() == page.locator("#answer").inner_text()
    assert other.locator("#rate").input_value() == page.locator("#rate").input_value()
    page.get_by_label("Model", exact=True).fill("qwen3-30b-a3b")
    page.locator("[name=acceptance]").select_option("")
    expect(page.locator("#rate")).to_have_value("0.71")
    page.go_back()
    page.wait_for_url("**acceptance=rate**")
    expect(page.locator(".verdict")).to_have_text(verdict)
    page.get_by_text("Skip to the answer").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**#answer")
    assert page.locator(".verdict").text_content() == verdict


def test_the_first_view_and_the_form_need_no_script(browser, address):
    page = opened(browser, address, java_script_enabled=False)
    assert "Turn speculation on: 2.32x, draft length 4" in page.locator(".verdict").inner_text()
    page.locator("[name=batch_size]").fill("64")
    page.get_by_role("button", name="Show").click()
    assert "64 requests at once" in page.locator(".verdict").inner_text()


IN_VIEW = (".verdict h2", ".gain", ".paste", ".verdict .copy", ".notes summary", "#curve + figure")


def test_the_answer_what_to_paste_and_the_curve_need_no_scroll(browser, address):
    page = opened(browser, address)
    page.set_viewport_size({"width": 1280, "height": 800})
    bottoms = {each: page.locator(each).bounding_box() for each in IN_VIEW}
    assert all(box["y"] + box["height"] <= 800 for box in bottoms.values()), bottoms
    assert page.locator("[name=tpot_target]").bounding_box()["y"] < 800
    assert not page.locator(".notes li").first.is_visible()
    page.locator(".verdict .copy").click()
    assert page.evaluate("getSelection().toString()") == page.locator(".paste").text_content()


def test_on_a_phone_each_cell_is_within_the_page_and_has_its_title(browser, address):
    page = opened(browser, address, 400)
    cells = page.locator("td, tbody th")
    boxes = [cells.nth(i).bounding_box() for i in range(cells.count())]
    assert boxes
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 400 for box in boxes)
    assert "speedup" in page.evaluate(
        "getComputedStyle(document.querySelectorAll('td')[2], '::before').content"
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_no_box_is_cut_or_over_another(browser, address, width):
    faults = {}
    for query in PAGES:
        page = opened(browser, f"{address}?{query}", width)
        page.evaluate(OPEN)
        faults[query] = page.evaluate(FAULTS)
        page.context.close()
    assert {query: found for query, found in faults.items() if found} == {}


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: npm install axe-core")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser, address, theme):
    found = {}
    for query in PAGES:
        page = opened(browser, f"{address}?{query}", 400, color_scheme=theme, bypass_csp=True)
        page.evaluate(OPEN)
        page.evaluate(AXE.read_text())
        told = page.evaluate("axe.run()")["violations"]
        found |= {(query, each["id"]): each["nodes"][0]["html"][:200] for each in told}
        page.context.close()
    assert found == {}
