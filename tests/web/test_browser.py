"""The dashboard as its users see it, in a real browser. No page may say anything on the console."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

import quorumlock as ql
from quorumlock.lab.servers import Servers, free_port
from tests.support.waiting import eventually

from .browser import Visit, running
from .conftest import MakeSite
from .site import TOKEN, Site, served

pytestmark = pytest.mark.real_time

expect.set_options(timeout=30_000)
Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens a dashboard; at the end nothing must have gone wrong on it."""
    visits: list[Visit] = []

    def make(site: Site, **options: Any) -> Visit:
        visits.append(Visit(browser, site.url, **options))
        return visits[-1]

    yield make
    for one in visits:
        one.end()


def test_a_lock_appears_and_goes_by_itself(site: Site, locks: ql.Locker, visit: Open) -> None:
    page = visit(site).go("#/locks")
    expect(page.get_by_text("No lock is held.")).to_be_visible()
    with locks.lock("orders:1", note="import of the day") as lease:
        row = page.get_by_role("row").filter(has_text="orders:1")
        expect(row).to_contain_text(str(lease.fence))
        expect(row).to_contain_text("import of the day")
        page.get_by_role("link", name="Overview").click()
        expect(page.locator(".tile").filter(has_text="Held").locator("strong")).to_have_text("1")
        expect(page.locator(".tile").filter(has_text="Nodes ready").locator("strong")).to_have_text("3 of 3")
        page.get_by_role("link", name="Locks").click()
        expect(row).to_be_visible()
    expect(page.get_by_text("No lock is held.")).to_be_visible()


def test_search_and_sort_with_the_keyboard_alone(site: Site, locks: ql.Locker, visit: Open) -> None:
    leases = [locks.lock(name).acquire() for name in ("orders:2", "orders:1", "invoices:1")]
    page = visit(site).go("#/locks")
    rows = page.locator(".list-row:visible .col-name")
    expect(rows).to_have_text(["invoices:1", "orders:1", "orders:2"])
    page.keyboard.press("/")
    page.keyboard.type("ORDER")
    expect(rows).to_have_text(["orders:1", "orders:2"])
    expect(page.locator(".found")).to_have_text("2 of 3")
    page.get_by_role("button", name="Name").press("Enter")
    assert page.locator(".list-row:visible .col-name").count() == 2
    expect(page.locator("[aria-sort=descending]")).to_have_text("Name")
    page.get_by_role("searchbox").press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders:2")
    page.go_back()
    page.get_by_role("searchbox").fill("nothing like it")
    expect(page.get_by_text("No lock matches.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(3)
    for lease in leases:
        lease.release()


def test_a_break_is_asked_for_and_done(site: Site, locks: ql.Locker, visit: Open) -> None:
    lease = locks.lock("stuck", note="hangs").acquire()
    page = visit(site).go("#/lock/stuck")
    page.get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("stuck")
    expect(dialog).to_contain_text(str(lease.fence))
    expect(dialog.get_by_role("button", name="Leave it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert lease.held, "the careless answer changes nothing"
    page.get_by_role("button", name="Break…").click()
    dialog.get_by_role("button", name="Break it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".headline .badge")).to_have_text("free")
    assert not lease.held
    assert locks.inspect("stuck").state == "free"
    expect(page.locator("table").filter(has_text="Fence").first).to_contain_text("broken")
    page.get_by_role("link", name="Events").click()
    expect(page.locator(".list-row:visible").filter(has_text="broken")).to_contain_text("dashboard@127.0.0.1")
    lease.release()


def test_where_breaking_is_not_allowed_there_is_no_button(
    make_site: MakeSite, locks: ql.Locker, visit: Open
) -> None:
    with locks.lock("a"):
        page = visit(make_site()).go("#/lock/a")
        expect(page.locator(".headline .badge")).to_have_text("held")
        expect(page.get_by_role("button", name="Break…")).to_be_hidden()


def test_dark_and_light(site: Site, visit: Open) -> None:
    def back(page: Any) -> int:
        """How bright the page is."""
        return int(page.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"))

    dark = visit(site, color_scheme="dark").go()
    assert back(dark) < 60, "as the system has it"
    light = visit(site, color_scheme="light").go()
    assert back(light) > 200
    for theme, is_dark in (("light", False), ("dark", True), ("auto", False)):
        light.locator("#theme").click()
        expect(light.locator("#theme")).to_have_text(f"theme: {theme}")
        assert (back(light) < 60) is is_dark
        light.reload()
        light.wait_for_selector(".live.is-live")
        assert (back(light) < 60) is is_dark, "and it is remembered"


ATTEMPTS = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"><svg onload='alert(1)'>",
    "javascript:alert(1)",
    "a/../../b#c%2f&amp;%zz",
]


def test_a_name_is_only_a_name(site: Site, locks: ql.Locker, visit: Open) -> None:
    leases = [locks.lock(name, note=f"note {name}").acquire() for name in ATTEMPTS]
    visitor = visit(site)
    page = visitor.go("#/locks")
    expect(page.locator(".list-row:visible .col-name")).to_have_text(sorted(ATTEMPTS))
    for lease in leases:
        page.locator(".list-row:visible").filter(has=page.get_by_text(lease.name, exact=True)).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(lease.name)
        expect(page.locator(".facts")).to_contain_text(f"note {lease.name}")
        expect(page.locator(".timeline")).to_be_visible()
        page.get_by_role("button", name="Break…").click()
        expect(page.get_by_role("dialog")).to_contain_text(lease.name)
        page.keyboard.press("Escape")
        page.go_back()
    for path in ("#/", "#/events"):
        visitor.go(path)
        expect(page.get_by_text(ATTEMPTS[0], exact=True).first).to_be_visible()
    assert page.locator("main img, main script, main svg[onload]").count() == 0
    for lease in leases:
        lease.release()


def test_the_policy_would_stop_a_script_that_got_in(site: Site, visit: Open) -> None:
    """The second line of defence, seen from inside: this page says something on the console, and must."""
    visitor = visit(site)
    page = visitor.go()
    blocked = page.evaluate(
        """() => {
            const script = document.createElement("script");
            let forbidden = false;
            try { script.text = "window.hacked = true"; document.head.append(script); } catch { forbidden = true; }
            try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch { forbidden = true; }
            return forbidden && window.hacked === undefined;
        }"""
    )
    assert blocked
    assert visitor.problems
    visitor.problems.clear()


@pytest.mark.live
def test_five_thousand_locks_do_not_freeze_the_page(make_site: MakeSite, visit: Open) -> None:
    """On a real server; the time a click, a key or a frame has to wait is measured in the page."""
    with Servers(1) as servers, ql.connect(servers.urls, max_ttl=120) as locks:
        leases = [locks.lock(f"orders:{n:05}", ttl=120, keep=False).acquire() for n in range(5000)]
        site = make_site(locks=locks, every=1.0)
        page = visit(site).go("#/locks")
        expect(page.locator(".found")).to_have_text("5,000 of 5,000")
        assert page.locator(".list-row").count() < 100, "only what can be seen exists"
        page.evaluate(
            """() => {
                window.longest = 0;
                let last = performance.now();
                (function frame() {
                    const now = performance.now();
                    window.longest = Math.max(window.longest, now - last);
                    last = now;
                    requestAnimationFrame(frame);
                })();
            }"""
        )
        page.get_by_role("searchbox").fill("04999")
        expect(page.locator(".list-row:visible .col-name")).to_have_text(["orders:04999"])
        page.get_by_role("searchbox").fill("")
        page.get_by_role("button", name="Fence").click()
        page.locator(".list").focus()
        page.keyboard.press("End")
        expect(page.locator(".list-row.is-active .col-name")).to_have_text("orders:04999")
        for lease in leases[:100]:
            lease.release()
        expect(page.locator(".found")).to_have_text("4,900 of 4,900")
        longest = page.evaluate("window.longest")
        print(f"the longest frame took {longest:.0f} ms")
        assert longest < 1500, "even on a busy machine"


def test_login_and_logout(make_site: MakeSite, visit: Open) -> None:
    site = make_site(token=TOKEN)
    visitor = visit(site)
    page = visitor.page
    page.goto(site.url)
    expect(page).to_have_url(f"{site.url}login")
    page.get_by_label("Access token").fill("wrong wrong wrong wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("this is not the access token")
    visitor.problems.clear()  # the browser itself tells of the 401
    page.get_by_label("Access token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".live")).to_have_text("live")
    assert page.evaluate("document.cookie") == "", "no script sees the session"
    page.route("**/logout", lambda route: route.abort())
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#problem")).to_contain_text("You are still logged in")
    page.unroute("**/logout")
    visitor.problems.clear()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{site.url}login")
    page.goto(site.url)
    expect(page).to_have_url(f"{site.url}login")


def test_behind_the_path_of_a_proxy(make_site: MakeSite, locks: ql.Locker, visit: Open) -> None:
    site = make_site(root_path="/ops/locks", allow_break=True)
    lease = locks.lock("a").acquire()
    page = visit(site).go("#/lock/a")
    page.get_by_role("button", name="Break…").click()
    page.get_by_role("button", name="Break it").click()
    expect(page.locator(".headline .badge")).to_have_text("free")
    lease.release()


def test_on_a_phone_nothing_is_wider_than_the_screen(site: Site, locks: ql.Locker, visit: Open) -> None:
    long = "a-very-long-name/" * 20
    with locks.lock(long, note="x" * 300):
        visitor = visit(site, viewport={"width": 360, "height": 740})
        for path, drawn in (
            ("#/", ".tile"), ("#/locks", ".list-row"), (f"#/lock/{quote(long, safe='')}", ".timeline"),
            ("#/nodes", "tbody tr"), ("#/events", ".list-row"),
        ):  # fmt: skip
            page = visitor.go(path)
            expect(page.locator(f"{drawn}:visible").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_it_says_when_it_is_cut_off_and_comes_back(locks: ql.Locker, visit: Open) -> None:
    with served(locks, allow_break=True, port=free_port()) as site:
        visitor = visit(site)
        page = visitor.go("#/lock/a")
    expect(page.locator(".live")).to_have_text("reconnecting")
    lease = locks.lock("a").acquire()
    with served(locks, allow_break=True, port=site.settings.port):
        expect(page.locator(".live")).to_have_text("live")
        expect(page.locator(".headline .badge")).to_have_text("held")
        page.get_by_role("button", name="Break…").click()
        page.get_by_role("button", name="Break it").click()
        expect(page.locator(".headline .badge")).to_have_text("free")  # with the CSRF token of the new server
        visitor.problems.clear()  # the browser tells of a connection that broke
        page.goto("about:blank")
    lease.release()


def test_who_waits_and_who_held_it_before(site: Site, locks: ql.Locker, visit: Open) -> None:
    page = visit(site).go("#/lock/job")
    expect(page.get_by_text("Nobody holds it.")).to_be_visible()
    fences = []
    with ql.connect(f"memory://{locks.engine.labels[0].removesuffix('-0')}?nodes=3") as other:
        done = threading.Event()

        def wait() -> None:
            with other.lock("job", fair=True) as lease:
                fences.append(lease.fence)
                done.wait(30)

        with locks.lock("job") as lease:
            fences.append(lease.fence)
            waiter = threading.Thread(target=wait)
            waiter.start()
            expect(page.locator(".queue li")).to_have_count(1)
            assert eventually(lambda: site.get("api/v1/events", name="job")["events"]), "seen, and not only shown"
        assert eventually(lambda: len(fences) == 2)
        expect(page.locator(".facts")).to_contain_text(str(fences[1]))
        expect(page.locator(".timeline .hold")).to_have_count(2)
        expect(page.locator(".timeline .hold title").last).to_contain_text(str(fences[1]))
        done.set()
        waiter.join()
    expect(page.get_by_text("Nobody holds it.")).to_be_visible()


REDRAWN = """async () => {
    const { el, replace, table } = await import("./static/dom.js");
    const box = el("div");
    document.body.append(box);
    const link = (key) => [el("a", { href: `#${key}` }, key)];
    const draw = (...keys) => replace(box, table([["", ""]], keys.map(link), keys));
    draw("a", "b", "c");
    const chosen = box.querySelector("[href='#b']");
    chosen.focus();
    const seen = ["xab", "b", "bxa", "xyba", "acb", "bca", "bb"].map((keys) => {
        draw(...keys);
        return [keys, box.querySelector("tbody").textContent, document.activeElement === chosen];
    });
    box.remove();
    return seen;
}"""


def test_focus_and_selection_stay_while_everything_changes(site: Site, locks: ql.Locker, visit: Open) -> None:
    with locks.lock("orders:1") as lease:
        page = visit(site).go()
        age, link = (page.locator(f"tr[data-key='orders:1'] {part}").last for part in (".number", "a"))
        link.focus()
        expect(age).not_to_have_text(age.inner_text())
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
        fence, age = page.locator(".facts dd .mono").last, page.locator(".facts dd").nth(1)
        expect(fence).to_have_text(str(lease.fence))
        fence.evaluate("(element) => getSelection().selectAllChildren(element)")
        expect(age).not_to_have_text(age.inner_text())
        assert page.evaluate("getSelection().toString()") == str(lease.fence)
        for keys, drawn, focused in page.evaluate(REDRAWN):  # rows come, go and move around the one with the focus
            assert (drawn, focused) == (keys, True)


def test_screen_readers_and_phones_find_everything(site: Site, locks: ql.Locker, visit: Open) -> None:
    leases = [locks.lock(name).acquire() for name in ("a", "b")]
    page = visit(site, viewport={"width": 360, "height": 740}).go("#/__defineGetter__")  # no page of ours
    expect(page.get_by_role("img", name="Held and waiting: 2 and 0 now")).to_be_visible()
    page.evaluate("location.hash = '#/constructor'")
    expect(page.locator(".tile")).to_have_count(5)
    page.get_by_role("link", name="Locks").click()
    rows = page.locator(".list-row:visible .col-name")
    expect(rows).to_have_text(["a", "b"])
    page.get_by_label("Sort").select_option("Name ↓")
    expect(rows).to_have_text(["b", "a"])
    page.set_viewport_size({"width": 1000, "height": 740})
    heads = page.get_by_role("grid").get_by_role("columnheader")
    expect(heads).to_have_count(7)
    page.get_by_role("grid").press("End")
    heads.get_by_role("button", name="Name").press("Enter")
    expect(rows).to_have_text(["a", "b"])
    page.get_by_role("grid").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("a")
    page.get_by_role("button", name="Break…").click()
    page.keyboard.press("/")  # searches, but not while something is asked
    assert page.evaluate("location.hash") == "#/lock/a"
    page.evaluate("location.hash = '#/locks'")
    expect(page.get_by_role("dialog")).to_be_hidden()
    for lease in leases:
        lease.release()
