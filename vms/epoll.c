/*
 * Preloaded into every User-mode Linux kernel: hands it one event at a time.
 *
 * The kernel's SIGIO handler (arch/um/kernel/irq.c) goes through an array of events that all of its activations share.
 * An interrupt's softirq lets the next SIGIO in, whose events overwrite those that the outer activation has not come
 * to yet; as descriptors are watched edge-triggered, these never come again. A disk whose completion is lost that way
 * hangs for ever: within seconds when disks and network are both busy, with 6.1, 6.12 and 7.2 alike. Events that were
 * not handed out stay with epoll, so with one at a time there is nothing to overwrite. No C library is needed but for
 * errno, so that it can be loaded with another suite's.
 */
#define SYS_EPOLL_WAIT 232

extern int *__errno_location(void);

int epoll_wait(int epoll, void *events, int room, int timeout)
{
	register long fourth __asm__("r10") = timeout;
	long result = SYS_EPOLL_WAIT;

	(void)room;
	__asm__ volatile("syscall" : "+a"(result) : "D"((long)epoll), "S"(events), "d"(1L), "r"(fourth)
			 : "rcx", "r11", "memory");
	if (result < 0) {
		*__errno_location() = (int)-result;
		return -1;
	}
	return (int)result;
}
