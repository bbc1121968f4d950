/* For user-mode Linux, by LD_PRELOAD: what it writes of a process's extended registers is written as a whole.
 *
 * It has room for those of AVX-512. Where the processor has more (AMX), the kernel takes nothing shorter than all of
 * them: EFAULT, and user-mode Linux ends in a panic before its first program. What it does not know stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*Ptrace)(enum __ptrace_request, ...);

/* Not on the stack, which is a small one of that kernel's. It does one of these calls at a time. */
static char all[1 << 16];

long ptrace(enum __ptrace_request request, ...)
{
	static Ptrace real;
	va_list given_words;
	va_start(given_words, request);
	pid_t pid = va_arg(given_words, pid_t);
	void *address = va_arg(given_words, void *);
	void *data = va_arg(given_words, void *);
	va_end(given_words);
	if (!real)
		real = (Ptrace)dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
		struct iovec *given = data;
		struct iovec whole = {all, sizeof all};
		if (real(PTRACE_GETREGSET, pid, address, &whole) == 0 && whole.iov_len > given->iov_len) {
			memcpy(all, given->iov_base, given->iov_len);
			return real(PTRACE_SETREGSET, pid, address, &whole);
		}
	}
	return real(request, pid, address, data);
}
