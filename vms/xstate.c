/*
 * Preloaded into User-mode Linux kernels up to 6.12 on CPUs with a large XSAVE area (AMX).
 *
 * PTRACE_SETREGSET of NT_X86_XSTATE fails with EFAULT if the caller's area is shorter than that of the CPU, and these
 * kernels pass a shorter one. This library reads the whole area, copies the caller's part over its beginning, and writes
 * the whole area back. It uses only errno of the C library, so it works with the C library of every suite.
 */
#define PTRACE_GETREGSET 0x4204
#define PTRACE_SETREGSET 0x4205
#define NT_X86_XSTATE 0x202
#define SYS_PTRACE 101

struct part {
	void *base;
	unsigned long length;
};

extern int *__errno_location(void);

static long system_call(long request, long pid, long address, long data)
{
	register long fourth __asm__("r10") = data;
	long result = SYS_PTRACE;

	__asm__ volatile("syscall" : "+a"(result) : "D"(request), "S"(pid), "d"(address), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}

long ptrace(int request, int pid, long address, long data)
{
	static unsigned char area[65536] __attribute__((aligned(64)));
	/* The system call stores the result of a PEEK request in memory; the C library's ptrace returns it. */
	long word, peek = request >= 1 && request <= 3;
	long result;

	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE) {
		struct part *given = (struct part *)data, whole = { area, sizeof(area) };

		if (system_call(PTRACE_GETREGSET, pid, address, (long)&whole) == 0 && whole.length > given->length) {
			for (unsigned long at = 0; at < given->length; at++)
				area[at] = ((unsigned char *)given->base)[at];
			result = system_call(PTRACE_SETREGSET, pid, address, (long)&whole);
			goto done;
		}
	}
	result = system_call(request, pid, address, peek ? (long)&word : data);
	if (peek && result >= 0) {
		*__errno_location() = 0;
		return word;
	}
done:
	if (result < 0) {
		*__errno_location() = (int)-result;
		return -1;
	}
	return result;
}
