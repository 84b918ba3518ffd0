import pytest

from raidproof.image.build_output import cause_of

OUTPUTS = [
    (
        "  CC      fs/nfsd/vfs.o\n/src/fs/nfsd/vfs.c: In function 'f':\n"
        "/src/fs/nfsd/vfs.c:12:3: error: 'x' undeclared (first use in this function)\n   12 |   x = 1;\n"
        "make[4]: *** [/src/scripts/Makefile.build:229: fs/nfsd/vfs.o] Error 1\n",
        "fs/nfsd/vfs.c:12:3: error: 'x' undeclared (first use in this function)",
    ),
    (
        'WARNING: modpost: missing description\nERROR: modpost: "md_x" [drivers/md/raid456.ko] undefined!\n',
        'ERROR: modpost: "md_x" [drivers/md/raid456.ko] undefined!',
    ),
    (
        "/usr/bin/ld: fs/read_write.o: in function `f':\nread_write.c:(.text+0x1): undefined reference to `g'\n"
        "collect2: error: ld returned 1 exit status\n",
        "read_write.c:(.text+0x1): undefined reference to `g'",
    ),
    (
        "make[3]: *** No rule to make target 'drivers/md/raid5.o', needed by 'drivers/md/built-in.a'.  Stop.\n",
        "make[3]: *** No rule to make target 'drivers/md/raid5.o', needed by 'drivers/md/built-in.a'.  Stop.",
    ),
    ("drivers/md/Kconfig:7: syntax error\n", "drivers/md/Kconfig:7: syntax error"),
    ("nothing to see\n", None),
]


@pytest.mark.parametrize(("output", "cause"), OUTPUTS)
def test_the_line_with_the_cause_is_found(output: str, cause: str | None) -> None:
    assert cause_of(output, "/src/") == cause
