"""The keeper: it saves the state of an existing machine before a lab uses the machine, and restores that state.

The harness copies this folder to machines. A snapshot contains a copy of the keeper, so that a machine can be
restored by hand, years later, without this repository. Standard library only, Python 3.9 or newer.

The table lists what the layers of the stack change on a machine, and how the keeper restores it:

| changed | by | saved | restored |
|---|---|---|---|
| export table, client table, kernel's export cache: /var/lib/nfs/{etab,rmtab} | exportfs, rpc.mountd | bytes | bytes |
| NFSv4 client records: /var/lib/nfs/nfsdcld, v4recovery | nfsdcld, nfsd | bytes, after their writers stopped | bytes |
| NFSv3 peers: /var/lib/nfs/{sm,sm.bak,state}, statd | rpc.statd | bytes, unless one runs | bytes |
| /proc/fs/nfsd: threads, ports, versions, lease time, grace time, block size | rpc.nfsd | values | values |
| rpc.mountd, nfsdcld, rpc.statd | export, mount | units and processes | started, stopped |
| the sysctls in `config.SYSCTLS` | export, tuning | values | values |
| queue/* of the member disks | tuning | values | values |
| md and dm devices on the member disks | array | nothing: raidproof created them | stopped |
| mounts in raidproof's directories; the directories | filesystem, mount | which existed | new ones removed |
| qdiscs of one interface, ifb0, gso_max_segs | link | values | removed; value |
| /run/raidproof: agents and their configuration, job files | workload, monitor, fault | bytes | bytes |
| /var/lib/raidproof-suites | workload | whether it existed | removed |
| /dev/disk/by-id/raidproof-* | provider of the disks | which existed | new ones removed |

The keeper also saves the bytes of the paths in `config.CONFIGURATION`: no layer writes these files, but a tool that
runs during a lab may write them. The keeper does not restore loaded modules, the content of the member disks, and the
files of mount and mdadm that exist until the next boot (/run/mount/utab, /run/mdadm/map). After a stop and start, the
machine's own NFS server has new client records.
"""
