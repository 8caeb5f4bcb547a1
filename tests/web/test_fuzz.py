"""The API does what its description says, whatever it is asked: every operation, with sense and with nonsense.

Parameters and bodies are drawn from the description itself. An answer must have a status that is described, and the
shape that is described for it, in which nothing else may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quorumlock
from tests.support.waiting import eventually

from .site import TOKEN, Site, served

# The dashboard lives in a thread of this process and uses `random`; Hypothesis takes that for ours.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")

NAMES = ["orders:1", "orders:2", "doc", "<img src=x onerror=alert(1)>", "ü/ä#0", "a" * 1024]
ROUNDS = settings(
    max_examples=30, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A dashboard with a token, on a fleet with some locks."""
    with quorumlock.connect("memory://fuzz?nodes=3") as locks, served(locks, token=TOKEN, allow_break=True) as site:
        leases = [locks.lock(name, note="a note").acquire() for name in NAMES]
        leases.append(locks.read_write("shared").read().acquire())
        assert eventually(lambda: program(site).get("api/v1/locks").json()["total"] == len(leases))
        yield site
        for lease in leases:
            lease.release()


def program(site: Site, client: list[httpx.Client] = []) -> httpx.Client:  # noqa: B006
    """One client for all: a connection for each question would be most of the time."""
    if not client or client[0].is_closed:
        client[:] = [site.visitor(headers={"authorization": f"Bearer {TOKEN}"})]
    return client[0]


@pytest.fixture(scope="module")
def described(site: Site) -> Any:
    return program(site).get("api/v1/openapi.json").json()


def operations(described: Any) -> dict[str, tuple[str, str, Any]]:
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


OPERATIONS = ["session", "overview", "locks", "lock", "nodes", "events", "openapi", "metrics"]


def fits(answer: httpx.Response, operation: Any, described: Any) -> None:
    """The status is described, and the body has the shape that belongs to it."""
    status = str(answer.status_code)
    assert status in operation["responses"], f"{answer.request.url}: {status} {answer.text[:300]}"
    content = operation["responses"][status]["content"]
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in content
    if kind == "application/json":
        schema = {**content[kind]["schema"], "components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())


def sensible(schema: Any) -> st.SearchStrategy[str]:
    """Values that a schema allows, as they stand in an address."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"]).map(str)
    least, most = schema.get("minLength", 0), schema["maxLength"]
    known = st.sampled_from([name[:most] for name in NAMES])
    return known | st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=min(40, most))


def nonsense(schema: Any) -> st.SearchStrategy[str]:
    """Values that a schema forbids."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if "enum" in schema:
        return text.filter(lambda value: value not in schema["enum"])
    if schema["type"] == "integer":
        outside = st.integers(schema["maximum"] + 1) | st.integers(max_value=schema["minimum"] - 1)
        return outside.map(str) | text.filter(lambda value: not (value.isascii() and value.isdigit()))
    return st.integers(schema["maxLength"] + 1, schema["maxLength"] + 50).map(lambda size: "x" * size)


def address(path: str, asked: dict[str, str]) -> str:
    return f"{path[1:]}?{urlencode(asked)}"


def test_every_operation_is_asked(described: Any) -> None:
    assert set(operations(described)) == {*OPERATIONS, "break", "stream"}


def test_the_description_is_openapi(described: Any) -> None:
    assert described["openapi"] == "3.1.0"
    for schema in described["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for _, _, operation in operations(described).values():
        assert {"200", "401", "421", "429"} <= set(operation["responses"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_allowed_is_answered(site: Site, described: Any, name: str) -> None:
    _, path, operation = operations(described)[name]
    known = operation.get("parameters", [])
    required = {one["name"]: sensible(one["schema"]) for one in known if one["required"]}
    optional = {one["name"]: sensible(one["schema"]) for one in known if not one["required"]}

    @(ROUNDS if known else settings(ROUNDS, max_examples=3))
    @given(st.fixed_dictionaries(required, optional=optional))
    def ask(asked: dict[str, str]) -> None:
        answer = program(site).get(address(path, asked))
        fits(answer, operation, described)
        if name != "lock":  # there a name may be one that no lock can have
            assert answer.status_code == 200, answer.text

    ask()


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name in ("locks", "lock", "events")])
def test_what_is_forbidden_is_refused(site: Site, described: Any, name: str) -> None:
    _, path, operation = operations(described)[name]
    known = {one["name"]: one for one in operation["parameters"]}

    @ROUNDS
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        wrong = data.draw(st.sampled_from(sorted(known)))
        asked = {"name": "a"} if name == "lock" else {}
        asked[wrong] = data.draw(nonsense(known[wrong]["schema"]))
        answer = program(site).get(address(path, asked))
        fits(answer, operation, described)
        assert answer.status_code == 400, answer.text

    ask()


def test_a_name_that_no_lock_can_have_is_refused(site: Site, described: Any) -> None:
    operation = operations(described)["lock"][2]
    for name in ("ql:x", "a*b", "{a}", "a\nb", "a\0b", "\\"):
        answer = program(site).get(address("/api/v1/lock", {"name": name}))
        fits(answer, operation, described)
        assert answer.status_code == 400
    fits(missing := program(site).get("api/v1/lock"), operation, described)
    assert missing.status_code == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
bodies = json_values | st.fixed_dictionaries(
    {"name": st.sampled_from(["free", "orders:1", "", "ql:x", "a*"]) | json_values},
    optional={"fence": json_values, "more": json_values},
)


def test_a_break_is_asked_for_in_every_way(site: Site, described: Any) -> None:
    _, path, operation = operations(described)["break"]
    allowed = jsonschema.Draft202012Validator(described["components"]["schemas"]["Break"])

    @ROUNDS
    @given(bodies, st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", ""]))
    def ask(body: Any, kind: str) -> None:
        if isinstance(body, dict) and body.get("name") == "orders:1":
            body = {**body, "fence": 1}  # nobody's: this one is needed by other tests
        answer = program(site).post(path[1:], content=json.dumps(body), headers={"content-type": kind})
        fits(answer, operation, described)
        if not kind.startswith("application/json"):
            assert answer.status_code == 415
        elif not allowed.is_valid(body):
            assert answer.status_code == 400, answer.text
        else:
            assert answer.status_code != 400 or not quorumlock_allows(body["name"]), answer.text

    ask()


def quorumlock_allows(name: str) -> bool:
    with quorumlock.connect("memory://fuzz-names") as locks:
        try:
            locks.lock(name)
        except quorumlock.ConfigurationError:
            return False
    return True


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 10_000, b'{"name": "a"}' * 2, b"NaN", b'{"name": NaN}']
)
def test_what_is_no_json_is_refused(site: Site, described: Any, body: bytes) -> None:
    _, path, operation = operations(described)["break"]
    answer = program(site).post(path[1:], content=body, headers={"content-type": "application/json"})
    fits(answer, operation, described)
    assert answer.status_code == 400


def test_a_stream_says_what_is_described(site: Site, described: Any) -> None:
    update = {"$ref": "#/components/schemas/Update", "components": described["components"]}
    with site.visitor(headers={"authorization": f"Bearer {TOKEN}"}).stream("GET", "api/v1/stream") as answer:
        data = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        for _ in range(3):
            jsonschema.Draft202012Validator(update).validate(json.loads(next(data)))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
def test_another_method_is_refused_in_json(site: Site, method: str) -> None:
    answer = program(site).request(method, "api/v1/locks")
    assert answer.status_code == 405
    assert set(answer.json()) == {"error"}


def test_the_check_sees_what_is_not_described(site: Site, described: Any) -> None:
    operation = operations(described)["session"][2]
    answer = program(site).get("api/v1/session")
    told = answer.json()
    request = answer.request
    kind = {"content-type": "application/json"}
    leak = httpx.Response(200, headers=kind, json={**told, "token": "x"}, request=request)
    with pytest.raises(jsonschema.ValidationError):
        fits(leak, operation, described)
    with pytest.raises(AssertionError):
        fits(httpx.Response(500, headers=kind, json={"error": "x"}, request=request), operation, described)
