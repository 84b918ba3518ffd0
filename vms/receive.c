/*
 * Preloaded into every User-mode Linux kernel: drops a packet for which there is no memory, and keeps the network up.
 *
 * If there is no memory for a packet, the kernel is to read the packet into drop_buffer and discard it, but
 * arch/um/drivers/vector_kern.c never allocates drop_buffer: readv gets a null pointer and fails with EFAULT. The
 * driver takes the error for the end of its device, and neither receives nor sends any more. This happens when a server
 * writes at full speed, and looks like a hung server. This library reads such a packet into a buffer of its own and
 * discards it; TCP sends it again.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>

extern long syscall(long number, ...);

ssize_t readv(int descriptor, const struct iovec *parts, int count)
{
	static char buffer[128]; /* a read from a tap discards the part of a packet that does not fit */
	const struct iovec discarded = { buffer, sizeof(buffer) };

	if (count == 1 && parts->iov_base == NULL)
		parts = &discarded;
	return syscall(SYS_readv, descriptor, parts, count);
}
