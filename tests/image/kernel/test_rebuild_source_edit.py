from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.image.kernel.rebuild import SourceEdit, SourcePatch, Substitution

SOURCE = """\
#include <linux/fs.h>
#ifdef CONFIG_X
#include "x.h"
#endif
#include "own.h"

static int sync(struct file *file);

int sync(struct file *file)
{
	if (file) {
		return flush(file);
	}
	return 0;
}

static struct answer *
answer(struct file *file,
       int both)
{
	return flush(file) + flush(file);
}
"""


def edit(*substitutions: Substitution) -> SourceEdit:
    return SourceEdit("a.c", "static int on;\n", substitutions)


def test_what_is_inserted_follows_the_last_include() -> None:
    assert edit().apply(SOURCE) == SOURCE.replace('"own.h"\n', '"own.h"\nstatic int on;\n')


def test_only_the_named_function_is_changed() -> None:
    changed = edit(Substitution("sync", "flush(", "on ? 0 : flush(")).apply(SOURCE)
    assert changed.count("on ? 0 : flush(file)") == 1
    assert "return on ? 0 : flush(file);\n\t}" in changed
    changed = edit(Substitution("answer", "flush(", "on ? 0 : flush(", 2)).apply(SOURCE)
    assert "return on ? 0 : flush(file) + on ? 0 : flush(file);" in changed
    assert "\t\treturn flush(file);" in changed


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Substitution("gone", "flush(", ""), "a.c has 0 functions gone, not 1"),
        (Substitution("flush", "file", ""), "a.c has 0 functions flush, not 1"),
        (Substitution("sync", "fsync(", ""), r"sync contains 'fsync\(' 0 times, not 1"),
        (Substitution("answer", "flush(", ""), r"answer contains 'flush\(' 2 times, not 1"),
        (Substitution("sync", "flush(", "", 2), r"sync contains 'flush\(' 1 times, not 2"),
    ],
)
def test_what_does_not_fit_fails(one: Substitution, says: str) -> None:
    with pytest.raises(RigError, match=says):
        edit(one).apply(SOURCE)


def test_a_function_that_exists_twice_is_refused() -> None:
    twice = SOURCE + "int sync(struct file *file)\n{\n\treturn flush(file);\n}\n"
    with pytest.raises(RigError, match="2 functions sync"):
        edit(Substitution("sync", "flush(", "")).apply(twice)


@pytest.mark.parametrize(
    ("source", "says"),
    [("int a;\n", "has no #include"), ('#include "a.h"\n#ifdef B\n#include "b.h"\n#endif\n', "is conditional")],
)
def test_an_insertion_without_a_place_is_refused(source: str, says: str) -> None:
    with pytest.raises(RigError, match=says):
        edit().apply(source)


PATCH = """\
What the patch does.

--- a/fs/a.c
+++ b/fs/a.c
@@ -2,3 +2,3 @@
 two
-three
+3
 four
"""


def test_a_patch_changes_the_source(tmp_path: Path) -> None:
    (tmp_path / "fs").mkdir()
    file = tmp_path / "fs" / "a.c"
    file.write_text("one\ntwo\nthree\nfour\n")
    SourcePatch(PATCH).change(tmp_path)
    assert file.read_text() == "one\ntwo\n3\nfour\n"
    with pytest.raises(RigError, match=r"does not match the kernel's source: .*FAILED"):
        SourcePatch(PATCH).change(tmp_path)


def test_an_edit_changes_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    edit().change(tmp_path)
    assert (tmp_path / "a.c").read_text() == edit().apply(SOURCE)
