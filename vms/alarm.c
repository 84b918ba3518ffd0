/*
 * Preloaded into every User-mode Linux kernel: sets the kernel's timer again if the kernel has lost an alarm.
 *
 * The kernel's clock is one host timer, which is set only for the next event. Linux 6.1 and 6.12 lose an alarm that
 * arrives while the handler of the previous alarm executes softirqs with interrupts disabled: unblock_signals in
 * arch/um/os-Linux/signal.c discards the pending alarm, to avoid entering the handler twice. From then on the
 * kernel treats the timer as set, and does not set it until an earlier event is scheduled. No sleep and no timeout ends,
 * while disks and network continue to work.
 *
 * The idle loop calls timer_gettime before each sleep, and does not sleep if the timer is not set. This is normal for a
 * moment after each alarm. If the timer stays unset for PATIENCE calls, this library sets it to expire at once.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>

#define PATIENCE 100 /* calls, together at most 1 ms; a pending alarm arrives before the next call */

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
