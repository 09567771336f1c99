"""Where a node's machine is reached: the exact expansion of what the operator has written, and nothing else (X1)."""

from __future__ import annotations

import pytest

from holdfast.policy.nodes.machine_address import BELOW, EXPECTED, Address, address, addresses, unusable

ROW = pytest.mark.row
NODE = "https://{node}/redfish/v1/Systems/1"
SUFFIX = "https://{node}.bmc.corp/redfish/v1/Systems/1"
PORT = "https://{node}.bmc.corp:8443/redfish/v1/Systems/1"
PATH = "https://bmc.corp/redfish/v1/Systems/{node}"
DELL = "https://{node}.bmc.corp/redfish/v1/Systems/System.Embedded.1"
ONE = "https://10.0.0.7:8443/redfish/v1/Systems/Self"
LISTED = (DELL, ONE)


@ROW("X1", level="pure")
@pytest.mark.parametrize("template", [NODE, SUFFIX, PORT, PATH])
@pytest.mark.parametrize("said", ["", "https://evil.example.com/redfish/v1/Systems/1", DELL, "\\"])
def test_X1_a_nodes_own_word_is_ignored_unless_the_operator_lists_addresses(template: str, said: str) -> None:
    assert address("n7", said, template) == Address(template.replace("{node}", "n7"))


@ROW("X1", level="pure")
@pytest.mark.parametrize(
    ("template", "said"),
    [
        (SUFFIX, ""),
        (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/1"),
        (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/System.Embedded.1"),
        (SUFFIX, ONE),
        (PORT, "https://n7.bmc.corp:8443/redfish/v1/Systems/1"),
        (PATH, "https://bmc.corp/redfish/v1/Systems/n7"),
        (NODE, "https://n7/redfish/v1/Systems/1"),
    ],
)
def test_X1_a_node_may_name_what_is_listed_whole_or_the_templates_own(template: str, said: str) -> None:
    assert address("n7", said, template, LISTED) == Address(said or "https://n7.bmc.corp/redfish/v1/Systems/1")


REFUSED = [
    # Another host, with the template's path.
    (NODE, "https://evil.example.com/redfish/v1/Systems/1"),
    (NODE, "https://n7.evil.example.com/redfish/v1/Systems/1"),
    (NODE, "https://n8/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com/n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp.evil.example.com/redfish/v1/Systems/1"),
    (SUFFIX, "https://bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://n8.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp./redfish/v1/Systems/1"),
    (PATH, "https://bmc.corp.evil.example.com/redfish/v1/Systems/n7"),
    (PATH, "https://10.0.0.8:8443/redfish/v1/Systems/Self"),
    # Parsers differ in where the host of these ends.
    (SUFFIX, "https://evil.example.com\\.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com\\@n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https:\\\\n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com#.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com?.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com%2f.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://evil.example.com\t.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp\n/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7\u3002bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https:/n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https:///n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "//n7.bmc.corp/redfish/v1/Systems/1"),
    # User info.
    (SUFFIX, "https://n7.bmc.corp@evil.example.com/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp:443@evil.example.com/redfish/v1/Systems/1"),
    (SUFFIX, "https://admin@n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://admin:x@n7.bmc.corp/redfish/v1/Systems/1"),
    # Another scheme, in which the password could be read, or another port.
    (SUFFIX, "http://n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "HTTPS://n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "file:///etc/passwd"),
    (SUFFIX, "n7.bmc.corp"),
    (SUFFIX, "https://n7.bmc.corp:443/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp:8443/redfish/v1/Systems/1"),
    (PORT, "https://n7.bmc.corp/redfish/v1/Systems/1"),
    # The same host, and another path: another machine, or something that is none.
    (SUFFIX, "https://n7.bmc.corp"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/1/"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/2"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/1?x=1"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/1#x"),
    (SUFFIX, "https://n7.bmc.corp//redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/../v1/Systems/1"),
    (PATH, "https://bmc.corp/redfish/v1/Systems/n8"),
    (PATH, "https://bmc.corp/redfish/v1/Systems/n7/../n8"),
    (PATH, "https://bmc.corp/redfish/v1/Systems/N7"),
    (PATH, ONE + "/Actions/ComputerSystem.Reset"),
    # What the operator has written, unexpanded, and what only looks like it.
    (SUFFIX, SUFFIX),
    (SUFFIX, DELL),
    (SUFFIX, " https://n7.bmc.corp/redfish/v1/Systems/1"),
    (SUFFIX, "https://n7.bmc.corp/redfish/v1/Systems/1 "),
    (SUFFIX, " "),
]


@ROW("X1", level="pure")
@pytest.mark.parametrize(("template", "said"), REFUSED)
def test_X1_anything_else_that_a_node_names_is_refused_with_what_is_allowed(template: str, said: str) -> None:
    found = address("n7", said, template, LISTED)
    expected = "expected an address that the setting provisioner_addresses_from_nodes lists"
    assert found == Address(refused=f"the node's annotation holdfast.dev/redfish: {expected}, found {said!r}")
    assert address("n7", said, template).url == template.replace("{node}", "n7"), "ignored, without a list"


@ROW("X1", level="pure")
def test_X1_a_refusal_quotes_a_nodes_word_in_one_line_and_cuts_it() -> None:
    refused = address("n7", "https://evil.example.com/\x1b[2J\n" + "x" * 5000, SUFFIX, LISTED).refused
    assert refused.isprintable()
    assert len(refused) < 400


@ROW("X1", level="pure")
@pytest.mark.parametrize(
    "node", ["", "evil.example.com/", "a@b", "a\\b", "a:1", "../x", "N7", "n7\n", "{node}", "a" * 254]
)
def test_X1_what_is_no_nodes_name_is_not_put_into_a_template(node: str) -> None:
    found = address(node, "", SUFFIX)
    assert (found.url, "is no node's name: expected a DNS subdomain" in found.refused) == ("", True)
    assert addresses(node, SUFFIX, LISTED) == ()


@ROW("X1", level="pure")
def test_X1_the_addresses_of_a_node_are_the_templates_and_the_listed_ones() -> None:
    assert addresses("n7", PATH, LISTED) == (
        "https://bmc.corp/redfish/v1/Systems/n7",
        "https://n7.bmc.corp/redfish/v1/Systems/System.Embedded.1",
        ONE,
    )
    longest = "a" * 253
    assert address(longest, "", PATH).url.endswith(longest)


USABLE = [
    SUFFIX,
    PORT,
    PATH,
    DELL,
    ONE,
    "https://[fd00::7]:8443/redfish/v1/Systems/{node}",
    "https://a_b/x",
    "https://{node}-bmc.corp/x",
]


@ROW("X1", level="pure")
@pytest.mark.parametrize("setting", USABLE)
def test_X1_an_operator_may_write_it(setting: str) -> None:
    assert unusable(setting) == unusable(setting, password=True) == ""
    unencrypted = setting.replace("https://", "http://")
    assert unusable(unencrypted) == ""
    assert "the password would be sent unencrypted" in unusable(unencrypted, password=True)


@ROW("X1", level="pure")
@pytest.mark.parametrize(
    "setting",
    [
        "",
        "bmc.corp",
        "ftp://bmc.corp/{node}",
        "HTTPS://bmc.corp/{node}",
        "{node}://bmc.corp/x",
        "https://",
        "https:///redfish/v1/Systems/{node}",
        "https://bmc.corp",
        "https://{node}/",
        "https://bmc.corp:{node}/x",
        "https://bmc.corp:99999/{node}",
        "https://[fd00::7/{node}",
        "https://bmc.corp\\.evil.example.com/{node}",
        "https://bmc.corp/a\\{node}",
        "https://bmc.corp%2f/{node}",
        "https://bmc corp/{node}",
        "https://bmc.corp/{node}\n",
        "https://bmc\u3002corp/{node}",
        "https://bmc.corp/{node}?x=1",
        "https://bmc.corp/{node}#x",
        "https://bmc.corp/{nodes}",
        "https://bmc.corp/{node",
    ],
)
def test_X1_an_operator_is_told_what_to_write(setting: str) -> None:
    assert unusable(setting).endswith(EXPECTED)


@ROW("X1", level="pure")
@pytest.mark.parametrize(
    "host", ["{node}", "{node}:8443", "bmc.{node}", "bmc-{node}", "{node}-bmc", "{node}m", "a.{node}x"]
)
def test_X1_an_operator_is_told_that_a_nodes_name_alone_is_no_host(host: str) -> None:
    # A node named evil.co, or evil.example.com, would lead there.
    assert unusable(f"https://{host}/redfish/v1/Systems/1") == BELOW
    assert unusable(f"http://{host}/redfish/v1/Systems/{{node}}") == BELOW


@ROW("X1", level="pure")
@pytest.mark.parametrize("info", ["admin", "admin:swordfish", "", "{node}"])
def test_X1_an_operator_is_told_where_name_and_password_belong(info: str) -> None:
    assert unusable(f"https://{info}@bmc.corp/{{node}}").startswith("expected no name and no password in it")
