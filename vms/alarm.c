/*
 * Preloaded into every User-mode Linux kernel: gives it back an alarm that it has lost.
 *
 * Its clock is one timer, set for the next event alone. An alarm that comes while the handler of the one before is at
 * its softirqs, with interrupts off, is noted, and thrown away as they go on again, not to enter the handler twice
 * (unblock_signals in arch/um/os-Linux/signal.c, 6.1 and 6.12). Then the kernel takes its timer for set, and as long
 * as nothing earlier comes it does not set it: no sleep and no timeout ends, while disks and network go on. Idle, it
 * asks each time whether the timer is set, and goes round without sleeping where it is not. That is so for a moment
 * after each alarm; where it stays so, the timer is set here.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>

#define PATIENCE 100 /* times that it asks, a millisecond at most; an alarm that is underway is there at the next one */

extern long syscall(long number, ...);

int timer_gettime(timer_t timer, struct itimerspec *left)
{
	static const struct itimerspec at_once = { .it_value = { .tv_nsec = 1 } };
	static int unset;
	int result = syscall(SYS_timer_gettime, timer, left);

	unset = result == 0 && left->it_value.tv_sec == 0 && left->it_value.tv_nsec == 0 ? unset + 1 : 0;
	if (unset >= PATIENCE) {
		unset = 0;
		syscall(SYS_timer_settime, timer, 0, &at_once, NULL);
	}
	return result;
}
