/*
 * Preloaded into every User-mode Linux kernel: shares the kernel's page of zeroes with the server of its disks.
 *
 * A vhost-user disk server may access only the memory that the kernel announces. The kernel omits its own image
 * (vhost_user_set_mem_table in arch/um/drivers/virtio_uml.c), which contains the page of zeroes. To write zeroes to a
 * device without a command for this (blkdev_issue_zeroout on RAID1 or RAID10, by mkfs and for ext4's extents), the
 * kernel sends this page. The server does not find the address in the announced memory, and closes the connection: the
 * disk is lost.
 *
 * In the file that contains the machine's memory, the range of the image is a hole, which reads as zeroes, as the page
 * does. Therefore this library extends the announced region to the start of the file. The kernel sends no other part
 * of its image to a disk.
 */
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>

extern long syscall(long number, ...);

enum { SET_MEM_TABLE = 5 }; /* VHOST_USER_SET_MEM_TABLE of the vhost-user protocol */

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
