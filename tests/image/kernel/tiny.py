"""A source tree with the interface of the kernel's build that takes a second to build."""

from pathlib import Path

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 99
SUBLEVEL = 1
EXTRAVERSION =
release := $(VERSION).$(PATCHLEVEL).$(SUBLEVEL)$(LOCALVERSION)
modules := $(INSTALL_MOD_PATH)/lib/modules/$(release)

allnoconfig:
	grep -v -e NEVER -e '^#?' $(KCONFIG_ALLCONFIG) > $(O)/.config
	sed -n 's/^#?//p' $(KCONFIG_ALLCONFIG) >> $(O)/.config

all: $(O)/linux
	mkdir -p $(O)/include/config
	echo $(release) > $(O)/include/config/kernel.release

$(O)/linux: init/main.c
	@echo "  CC      init/main.o"
	$(CC) -o $@ $(CURDIR)/init/main.c

modules_install:
	mkdir -p $(modules)/kernel
	ln -s $(O) $(modules)/build
	printf 'kernel/fs/%s.ko\\n' ext4/ext4 nfs/nfs nfs/nfsv4 md/md-mod virtio_uml virtio_blk \\
	raid0 raid1 raid10 raid456 xfs nfsv3 ifb sch_prio sch_netem sch_tbf sch_ingress \\
	cls_u32 cls_matchall act_gact act_mirred \\
	> $(modules)/modules.builtin
	printf '\\0depends=$(DEPENDS)\\0vermagic=$(release) mod_unload \\0' > $(modules)/kernel/nfsd.ko
"""
MAIN = '#include <stdio.h>\nint main(void) { puts("6.99.1"); return 0; }\n'
KCONFIG = """\
menuconfig MD
	bool "Multiple devices"

if MD
config MD_NEVER
	bool "Never"
	depends on MD && !MD
	depends on BROKEN || \\
		ODD
	help
		An option that cannot be set.
endif
"""


def write(tree: Path) -> Path:
    """Write the source tree into a new folder, and return the folder."""
    files = {
        "Makefile": MAKEFILE,
        "init/main.c": MAIN,
        "arch/um/Kconfig": "config UML\n",
        "drivers/md/Kconfig": KCONFIG,
    }
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    return tree
