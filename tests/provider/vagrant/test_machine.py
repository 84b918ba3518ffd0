"""Parsing of real output of Vagrant 2.3.4 with vagrant-libvirt 0.11.2."""

from pathlib import Path

import pytest

from raidproof.provider.vagrant.machine import complaint, parse_messages, parse_ssh_config

DATA = Path(__file__).resolve().parents[2] / "data" / "vagrant"


def test_what_each_machine_did_is_read() -> None:
    said = parse_messages((DATA / "up.txt").read_text())
    ended = {message.target for message in said if message.kind == "action" and message.data == ("up", "end")}
    assert ended == {"server", "client1"}
    assert complaint(said) is None


def test_commas_and_line_ends_in_a_text_are_what_they_were() -> None:
    said = parse_messages("1700000000,server,ui,info,one%!(VAGRANT_COMMA) two\\nthree\n")
    assert said[0].data == ("info", "one, two\nthree")


def test_a_failure_is_reported_in_one_line_with_its_cause() -> None:
    told = complaint(parse_messages((DATA / "up-failed.txt").read_text()))
    assert told is not None
    assert "\n" not in told
    assert "responded with a non-zero exit status" in told


def test_a_line_that_is_none_of_vagrants_is_left_out() -> None:
    text = (DATA / "up.txt").read_text()
    assert parse_messages("warning: something of Ruby's, with commas, in it\n\n" + text) == parse_messages(text)


@pytest.mark.parametrize("cut", [1, 40, 700, 5000])
def test_output_cut_short_is_read_as_far_as_it_goes(cut: int) -> None:
    text = (DATA / "up.txt").read_text()
    assert parse_messages(text[:-cut])[:5] == parse_messages(text)[:5]
    assert complaint(parse_messages(text[:-cut])) is None


def test_how_to_log_in_is_read_for_each_machine() -> None:
    texts = [
        message.data[-1]
        for message in parse_messages((DATA / "ssh-config.txt").read_text())
        if message.kind == "ssh-config"
    ]
    found = parse_ssh_config("\n".join(texts))
    assert {name: one.address for name, one in found.items()} == {"server": "10.77.0.10", "client1": "10.77.0.21"}
    assert found["server"].user == "root"
    assert found["server"].port == 22
    assert found["server"].keys == (Path("/tmp/raidproof-0/0123abcd/key"),)


def test_the_login_to_a_users_box_follows_its_configuration() -> None:
    said = parse_messages((DATA / "ssh-config-user.txt").read_text())
    texts = [message.data[-1] for message in said if message.kind == "ssh-config"]
    found = parse_ssh_config("\n".join(texts))
    assert (found["server"].user, found["client1"].user) == ("root", "vagrant")
    assert found["client1"].keys == (Path("/tmp/raidproof-0/0123abcd/vagrant/insecure_private_key"),)
