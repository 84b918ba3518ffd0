"""The keeper: saves what a machine is like before it is used, and makes it so again.

The folder is copied onto machines and runs there alone, from beside the snapshot that it took: standard library only,
Python 3.9 or newer. A machine can so be restored whoever asks, also by hand, years later, without this repository.

What the layers of the stack change on a machine, and what is done about it:

| changed | by | saved | put back |
|---|---|---|---|
| export table, client table, kernel's export cache: /var/lib/nfs/{etab,rmtab} | exportfs, rpc.mountd | bytes | bytes |
| NFSv4 client records: /var/lib/nfs/nfsdcld, v4recovery | nfsdcld, nfsd | bytes, once nobody writes | bytes |
| NFSv3 peers: /var/lib/nfs/{sm,sm.bak,state}, statd | rpc.statd | bytes, unless one runs | bytes |
| /proc/fs/nfsd: threads, ports, versions, lease, grace, block size | rpc.nfsd | values | values |
| rpc.mountd, nfsdcld, rpc.statd | export, mount | units and processes | started, stopped |
| fs.leases-enable, vm.dirty_*, and their neighbours | export, tuning | values | values |
| queue/* of the member disks | tuning | values | values |
| md and dm devices on the member disks | array | nothing: they are ours | stopped |
| mounts in our directories; the directories | filesystem, mount | which there were | undone |
| qdiscs of one interface, ifb0, gso_max_segs | link | values | removed; value |
| /run/raidproof: agents, orders, job files | workload, monitor, fault | bytes | bytes |
| /var/lib/raidproof-suites | workload | whether it was there | removed |
| /dev/disk/by-id/raidproof-* | who provides the disks | which there were | removed |

Saved as bytes too, though no layer writes them, because tools that run meanwhile might: what `config.CONFIGURATION`
lists. Loaded modules stay loaded. What is on the member disks stays. What mount and mdadm remember until the next boot
(/run/mount/utab, /run/mdadm/map) stays too. An NFS server that was stopped and started again has new client records.
"""
