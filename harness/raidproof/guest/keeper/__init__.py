"""The keeper: saves the state of a machine before a lab uses it, and restores that state.

The harness copies this folder onto machines; it runs there from beside the snapshot that it took. Standard library
only, Python 3.9 or newer. So a machine can be restored by hand, years later, without this repository.

What the layers of the stack change on a machine, and how it is restored:

| changed | by | saved | restored |
|---|---|---|---|
| export table, client table, kernel's export cache: /var/lib/nfs/{etab,rmtab} | exportfs, rpc.mountd | bytes | bytes |
| NFSv4 client records: /var/lib/nfs/nfsdcld, v4recovery | nfsdcld, nfsd | bytes, after their writers stopped | bytes |
| NFSv3 peers: /var/lib/nfs/{sm,sm.bak,state}, statd | rpc.statd | bytes, unless one runs | bytes |
| /proc/fs/nfsd: threads, ports, versions, lease, grace, block size | rpc.nfsd | values | values |
| rpc.mountd, nfsdcld, rpc.statd | export, mount | units and processes | started, stopped |
| fs.leases-enable, vm.dirty_*, and their neighbours | export, tuning | values | values |
| queue/* of the member disks | tuning | values | values |
| md and dm devices on the member disks | array | nothing: they belong to raidproof | stopped |
| mounts in raidproof's directories; the directories | filesystem, mount | which existed | undone |
| qdiscs of one interface, ifb0, gso_max_segs | link | values | removed; value |
| /run/raidproof: agents, orders, job files | workload, monitor, fault | bytes | bytes |
| /var/lib/raidproof-suites | workload | whether it existed | removed |
| /dev/disk/by-id/raidproof-* | provider of the disks | which existed | removed |

The keeper also saves the paths in `config.CONFIGURATION` as bytes: no layer writes them, but tools that run meanwhile
might. It does not restore: loaded modules; the content of the member disks; what mount and mdadm remember until the
next boot (/run/mount/utab, /run/mdadm/map). An NFS server that was stopped and started again has new client records.
"""
