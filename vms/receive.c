/*
 * Preloaded into every User-mode Linux kernel: lets it lose a packet without losing its network.
 *
 * Where there is no memory for a packet, the kernel means to read it into a buffer and forget it, but never allocates
 * that buffer (drop_buffer in arch/um/drivers/vector_kern.c is a null pointer). It takes the EFAULT for the end of its
 * device: from then on it neither receives nor sends. A packet comes without memory when a server writes as fast as it
 * can; then all looks as if the server hung. Here such a packet is read and forgotten, and TCP sends it again.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>

extern long syscall(long number, ...);

ssize_t readv(int descriptor, const struct iovec *parts, int count)
{
	static char nowhere[128]; /* of a packet that does not fit, the rest is gone too */
	const struct iovec forgotten = { nowhere, sizeof(nowhere) };

	if (count == 1 && parts->iov_base == NULL)
		parts = &forgotten;
	return syscall(SYS_readv, descriptor, parts, count);
}
