/*
 * Preloaded into every User-mode Linux kernel: hands it one event at a time.
 *
 * The kernel's SIGIO handler (arch/um/kernel/irq.c) goes through an array of events that all of its activations share.
 * An interrupt's softirq lets the next SIGIO in, whose events overwrite those that the outer activation has not come
 * to yet; as descriptors are watched edge-triggered, these never come again. A disk whose completion is lost that way
 * hangs for ever: within seconds when disks and network are both busy, with 6.1, 6.12 and 7.2 alike. Events that were
 * not handed out stay with epoll, so with one at a time there is nothing to overwrite.
 *
 * epoll_pwait is the C library's own and, as epoll_wait must be, a cancellation point: newer kernels end their threads
 * by it. It is all that is taken from that library, so that another suite's serves as well.
 */
extern int epoll_pwait(int epoll, void *events, int room, int timeout, const void *signals);

int epoll_wait(int epoll, void *events, int room, int timeout)
{
	(void)room;
	return epoll_pwait(epoll, events, 1, timeout, (void *)0);
}
