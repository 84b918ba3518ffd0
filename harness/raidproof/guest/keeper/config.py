"""The paths, sysctls, queue settings, systemd units and daemons whose state the keeper saves."""

CONFIGURATION = (
    "/etc/exports",
    "/etc/exports.d",
    "/etc/mdadm",
    "/etc/mdadm.conf",
    "/etc/mdadm.conf.d",
    "/etc/fstab",
    "/etc/ganesha",
    "/etc/nfs.conf",
    "/etc/nfs.conf.d",
    "/etc/nfsmount.conf",
    "/etc/nfsmount.conf.d",
    "/etc/idmapd.conf",
    "/etc/default/nfs-common",
    "/etc/default/nfs-kernel-server",
    "/etc/default/mdadm",
    "/etc/sysconfig/nfs",
    "/etc/sysctl.conf",
    "/etc/sysctl.d",
    "/etc/modules-load.d",
    "/etc/modprobe.d",
    "/etc/udev/rules.d",
    "/etc/systemd/system",
)
"""Configuration files and folders, saved as bytes."""
NFS_STATE = "/var/lib/nfs"
CLIENT_RECORDS = tuple(f"{NFS_STATE}/{name}" for name in ("nfsdcld", "nfsdcltrack", "v4recovery"))
"""Client records of NFSv4. A running server writes them, so they are saved after the server has stopped."""
PEERS = tuple(f"{NFS_STATE}/{name}" for name in ("sm", "sm.bak", "state", "statd"))
"""Files of rpc.statd; neither saved nor restored if the machine's own rpc.statd runs."""
TABLES = (f"{NFS_STATE}/etab", f"{NFS_STATE}/rmtab")
"""The tables of exports and of mounting clients (exportfs(8), rpc.mountd(8))."""

SYSCTLS = (
    "/proc/sys/fs/leases-enable",
    "/proc/sys/fs/lease-break-time",
    "/proc/sys/fs/nfs/*",
    "/proc/sys/sunrpc/*",
    "/proc/sys/vm/dirty_*",
    "/proc/sys/dev/raid/speed_limit_*",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/sysrq",
)
"""Patterns of the paths of sysctls."""
QUEUE = (
    # The scheduler is first, because its change resets nr_requests.
    "queue/scheduler",
    "queue/nr_requests",
    "queue/read_ahead_kb",
    "queue/max_sectors_kb",
    "queue/write_cache",
)
"""Settings of a member disk's queue in sysfs."""
NFSD = "/proc/fs/nfsd"
NFSD_KNOBS = ("versions", "nfsv4leasetime", "nfsv4gracetime", "max_block_size")
NFSD_USUAL = {"nfsv4leasetime": "90", "nfsv4gracetime": "90"}
"""Kernel defaults in seconds (NFSD_DEFAULT_LEASE), restored if nfsd was not loaded at the time of the snapshot."""

SERVER_UNITS = ("nfs-server.service", "nfs-mountd.service", "nfsdcld.service", "fsidd.service", "nfs-idmapd.service")
UNITS = (
    *SERVER_UNITS,
    "rpc-statd.service",
    "rpc-statd-notify.service",
    "rpcbind.socket",
    "rpcbind.service",
    "rpc-gssd.service",
    "nfs-blkmap.service",
    "proc-fs-nfsd.mount",
    "run-rpc_pipefs.mount",
    "var-lib-nfs-rpc_pipefs.mount",
    "mdmonitor.service",
)
SERVER_DAEMONS = ("rpc.mountd", "nfsdcld", "fsidd")
DAEMONS = (*SERVER_DAEMONS, "rpc.statd", "rpc.idmapd", "rpcbind", "blkmapd")
INGRESS = "ifb0"
"""Name of the network device (ifb) that raidproof adds to delay, drop or limit incoming packets."""
OUR_FOLDERS = ("/var/lib/raidproof-suites",)
"""Folders that raidproof creates for external test suites; removed if they did not exist at the snapshot."""
OUR_LINKS = "/dev/disk/by-id/raidproof-*"
