/* Test your own application with raidproof: copy this file beside your program (C99, POSIX; no other files).
 *
 * In the command `run`:
 *
 *     raidproof_begun(17);           before operation 17 changes anything
 *     ...                            write, and make durable
 *     raidproof_acknowledged(17);    where the application would say "done" to its user
 *
 * In the command `check`, for what is there after the crash:
 *
 *     raidproof_present(17);         operation 17 is there, and complete; once for each time that it is there
 *     raidproof_wrong(18, "half");   operation 18 is there, but not as it was written
 *     raidproof_damaged("index");    something is damaged that belongs to no single operation
 *
 * An ID is a number from 0 to 4294967295; each operation of a run has its own. Without raidproof the reports have no
 * effect, so that the program also runs alone. Each report is one write(2) of less than 64 bytes: threads need no lock.
 */
#ifndef RAIDPROOF_APP_H
#define RAIDPROOF_APP_H

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Return the directory of the application's data; without raidproof, the current directory. */
static inline const char *raidproof_directory(void)
{
	const char *directory = getenv("RAIDPROOF_DIRECTORY");

	return directory ? directory : ".";
}

/* Return the seed of the run; each client has a seed of its own. Without raidproof: 1. */
static inline unsigned long long raidproof_seed(void)
{
	const char *seed = getenv("RAIDPROOF_SEED");

	return seed ? strtoull(seed, NULL, 10) : 1;
}

/* Send one report. Return 0, or -1 with errno set. */
static inline int raidproof_report(const char *what, uint32_t number)
{
	const char *descriptor = getenv("RAIDPROOF_FD");
	char line[64];
	int length, done = 0;

	if (!descriptor)
		return 0;
	length = snprintf(line, sizeof(line), "%s %" PRIu32 "\n", what, number);
	while (done < length) {
		ssize_t written = write(atoi(descriptor), line + done, (size_t)(length - done));

		if (written < 0) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		done += (int)written;
	}
	return 0;
}

/* Report that an operation begins. Call this before the operation changes anything. */
static inline int raidproof_begun(uint32_t number)
{
	return raidproof_report("begun", number);
}

/* Report that an operation is durable. Call this where the application would tell its user that it is done. */
static inline int raidproof_acknowledged(uint32_t number)
{
	return raidproof_report("acknowledged", number);
}

/* Print that an operation is there, complete and as it was written. */
static inline void raidproof_present(uint32_t number)
{
	printf("present %" PRIu32 "\n", number);
}

/* Print that an operation is there with other content; reason: one word. */
static inline void raidproof_wrong(uint32_t number, const char *reason)
{
	printf("wrong %" PRIu32 " %s\n", number, reason);
}

/* Print that something is damaged that belongs to no single operation; reason: one word. */
static inline void raidproof_damaged(const char *reason)
{
	printf("damaged %s\n", reason);
}

#endif
