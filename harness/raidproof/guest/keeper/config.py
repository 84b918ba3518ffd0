"""What of a machine is saved: paths, knobs, units, daemons."""

CONFIGURATION = (
    "/etc/exports",
    "/etc/exports.d",
    "/etc/mdadm",
    "/etc/mdadm.conf",
    "/etc/mdadm.conf.d",
    "/etc/fstab",
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
NFS_STATE = "/var/lib/nfs"
CLIENT_RECORDS = tuple(f"{NFS_STATE}/{name}" for name in ("nfsdcld", "nfsdcltrack", "v4recovery"))
"""Written all the time by a server that runs, so they are saved once it has stopped."""
PEERS = tuple(f"{NFS_STATE}/{name}" for name in ("sm", "sm.bak", "state", "statd"))
"""rpc.statd's; left alone where one runs that is not ours."""
TABLES = (f"{NFS_STATE}/etab", f"{NFS_STATE}/rmtab")

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
QUEUE = (
    # A change of the scheduler sets nr_requests anew.
    "queue/scheduler",
    "queue/nr_requests",
    "queue/read_ahead_kb",
    "queue/max_sectors_kb",
    "queue/write_cache",
)
NFSD = "/proc/fs/nfsd"
NFSD_KNOBS = ("versions", "nfsv4leasetime", "nfsv4gracetime", "max_block_size")
NFSD_USUAL = {"nfsv4leasetime": "90", "nfsv4gracetime": "90"}
"""What a kernel begins with (NFSD_DEFAULT_LEASE), where nfsd was not loaded when we came."""

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
OUR_FOLDERS = ("/var/lib/raidproof-suites",)
"""Folders of ours that come with all that is in them, and go with it: outside suites."""
OUR_LINKS = "/dev/disk/by-id/raidproof-*"
