"""What the keeper saves of a machine: paths, sysctls, queue settings, units, daemons."""

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
"""A running server writes these all the time, so they are saved after it has stopped."""
PEERS = tuple(f"{NFS_STATE}/{name}" for name in ("sm", "sm.bak", "state", "statd"))
"""Files of rpc.statd; not touched if an rpc.statd runs that is not raidproof's."""
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
    # A change of the scheduler resets nr_requests.
    "queue/scheduler",
    "queue/nr_requests",
    "queue/read_ahead_kb",
    "queue/max_sectors_kb",
    "queue/write_cache",
)
NFSD = "/proc/fs/nfsd"
NFSD_KNOBS = ("versions", "nfsv4leasetime", "nfsv4gracetime", "max_block_size")
NFSD_USUAL = {"nfsv4leasetime": "90", "nfsv4gracetime": "90"}
"""Kernel defaults in seconds (NFSD_DEFAULT_LEASE), if nfsd was not loaded when the snapshot was taken."""

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
"""Folders of raidproof for outside suites; restored by removing them with their content."""
OUR_LINKS = "/dev/disk/by-id/raidproof-*"
