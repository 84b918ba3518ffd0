/*
 * Preloaded into every User-mode Linux kernel: epoll_wait returns one event at a time.
 *
 * All activations of the kernel's SIGIO handler (arch/um/kernel/irq.c) share one array of events. While the handler
 * executes the softirqs of an interrupt, another SIGIO can interrupt it; the events of this SIGIO overwrite those that
 * the interrupted activation has not yet handled. The descriptors are edge-triggered, so the lost events are not
 * reported again. A disk whose completion is lost hangs for ever: within seconds if disks and network are both busy,
 * with Linux 6.1, 6.12 and 7.2. With one event at a time nothing is overwritten: epoll keeps the other events.
 *
 * epoll_wait must be a cancellation point, because newer kernels end their threads by cancellation; epoll_pwait of the
 * C library is one. The library uses no other function of the C library, so it works with that of every suite.
 */
extern int epoll_pwait(int epoll, void *events, int room, int timeout, const void *signals);

int epoll_wait(int epoll, void *events, int room, int timeout)
{
	(void)room;
	return epoll_pwait(epoll, events, 1, timeout, (void *)0);
}
