import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.exports import Client, Exported, chosen, parse_exports
from raidproof.existing.given import Given


def parsed(text: str) -> tuple[Exported, ...]:
    return parse_exports(Given("exports", text))


def only(text: str) -> Exported:
    (one,) = parsed(text)
    return one


def first(text: str) -> Client:
    return only(text).clients[0]


def test_the_defaults_are_those_of_the_manual() -> None:
    client = first("/srv host\n")
    assert (client.host, client.rw, client.sync, client.wdelay) == ("host", False, True, True)
    assert (client.subtree_check, client.root_squash, client.fsid) == (False, True, None)


@pytest.mark.parametrize(
    "host", ["*", "*.example.org", "@group", "10.0.0.0/8", "10.1.0.0/255.255.0.0", "2001:db8::/32", "gss/krb5i", "h-1"]
)
def test_every_form_of_a_client(host: str) -> None:
    assert first(f"/srv {host}(rw,async)\n").host == host
    assert not first(f"/srv {host}(rw,async)\n").sync


def test_each_client_has_its_options_and_those_before_all_clients() -> None:
    found = only("/srv -rw,no_wdelay a b(async) c(ro,wdelay)\n")
    assert [(one.host, one.rw, one.sync, one.wdelay) for one in found.clients] == [
        ("a", True, True, False),
        ("b", True, False, False),
        ("c", False, True, True),
    ]
    assert found.writer == found.clients[0]


def test_the_last_option_counts() -> None:
    assert first("/srv *(rw,async,sync)\n").sync
    assert not first("/srv *(async,rw,ro)\n").rw


def test_a_space_before_the_options_gives_them_to_every_host() -> None:
    host, everybody = only("/srv host (rw)\n").clients
    assert (host.host, host.rw) == ("host", False)
    assert (everybody.host, everybody.rw, everybody.split_from) == ("*", True, "host")
    assert only("/srv a(ro) (rw)\n").clients[1].split_from is None


def test_quotes_octal_codes_comments_and_continued_lines() -> None:
    found = parsed('# all\n"/srv/a b" \\\n  host(rw) \\\n  # no client\n/srv/c\\040d\thost(rw)#end\n\n/e\n')
    assert [one.path for one in found] == ["/srv/a b", "/srv/c d", "/e"]
    assert [one.source for one in found] == ["exports:2", "exports:5", "exports:7"]
    assert [len(one.clients) for one in found] == [1, 1, 1]
    assert found[2].clients[0].host == "*"


def test_a_trailing_slash_is_no_other_directory() -> None:
    assert only("/srv/ *(rw)\n").path == "/srv"
    assert only("/ *(rw)\n").path == "/"


def test_files_of_a_directory_as_grep_prints_them() -> None:
    lines = ("a.exports:/srv/a *(rw)", "b.exports:# none", "b.exports:/srv/b *(ro)")
    text = "".join(f"/etc/exports.d/{line}\n" for line in lines)
    assert [(one.path, one.source) for one in parsed(text)] == [
        ("/srv/a", "exports: /etc/exports.d/a.exports"),
        ("/srv/b", "exports: /etc/exports.d/b.exports"),
    ]


def test_fsid_is_kept() -> None:
    assert first("/srv *(rw,fsid=root)\n").fsid == "root"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("srv *(rw)\n", "exports:1: an exported path begins with /"),
        ("\n/srv host(rw\n", "exports:2: not HOST"),
        ("/srv host(rw, sync)\n", "exports:1: not HOST.*close the parenthesis"),
        ('"/srv *(rw)\n', "exports:1: a quotation mark is not closed"),
        ("/srv *(rw,a`b)\n", "exports:1: malformed option"),
        ("/srv\\012x *(rw)\n", "exports:1: the path contains"),
        ("/srv *(rw)\x1b[2J\n", "exports:1: contains the control character"),
        (f"/srv {'a' * 70_000}\n", "exports:1: the line has more than"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parsed(text)


def test_the_export_of_a_path() -> None:
    exports = parsed("/a *(ro)\n/b *(rw)\n/a *(rw)\n")
    assert chosen(exports, "/a/").writer is not None
    with pytest.raises(RequestError, match="/c is not exported; exported: /a, /b"):
        chosen(exports, "/c")
