/*
 * Preloaded into every User-mode Linux kernel: lets its disks read the page of zeroes.
 *
 * The kernel tells the programs that serve its virtio disks which of its memory they may use, and leaves out its own
 * image (vhost_user_set_mem_table in arch/um/drivers/virtio_uml.c). The page of zeroes lies in there. Whoever writes
 * zeroes to a device without a command for that (blkdev_issue_zeroout on RAID1 or RAID10: mkfs, ext4's extents) sends
 * that page; the server finds an address that it does not know and hangs up, and the disk is gone.
 *
 * In the file behind the memory the place of the image is a hole, which reads as zeroes: just what that page holds. So
 * the region is made to begin at the file's start. Nothing else of the image is ever given to a disk.
 */
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>

extern long syscall(long number, ...);

enum { SET_MEM_TABLE = 5 }; /* the vhost-user protocol's number */

struct memory_table {
	uint32_t request, flags, size;
	uint32_t regions, padding;
	struct {
		uint64_t guest_address, size, user_address, offset;
	} region[1];
} __attribute__((packed));

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	struct memory_table *table = message->msg_iovlen ? message->msg_iov[0].iov_base : 0;

	if (table && message->msg_control && message->msg_iov[0].iov_len >= sizeof(*table) &&
	    table->request == SET_MEM_TABLE && table->regions &&
	    table->region[0].guest_address == table->region[0].offset &&
	    table->region[0].guest_address == table->region[0].user_address) {
		table->region[0].size += table->region[0].offset;
		table->region[0].guest_address = 0;
		table->region[0].user_address = 0;
		table->region[0].offset = 0;
	}
	return syscall(SYS_sendmsg, socket, message, flags);
}
