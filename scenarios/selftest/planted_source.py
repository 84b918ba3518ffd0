"""C code that gives a kernel module parameters: one selects a planted defect, one counts the steps left out."""

_INSERTED = """\
#include <linux/module.h>

static char planted_defect[32]%s;
module_param_string(defect, planted_defect, sizeof(planted_defect), 0644);
static unsigned int planted_calls, planted_broken;
module_param_named(broken, planted_broken, uint, 0644);

static inline bool planted_nth(const char *defect, unsigned int nth)
{
	if (!sysfs_streq(planted_defect, defect) || ++planted_calls %% nth)
		return false;
	planted_broken++;
	return true;
}

static inline bool planted(const char *defect)
{
	return planted_nth(defect, 1);
}
"""


def inserted(defect: str = "") -> str:
    """Return the code to insert into a C file of a module; ``defect`` is the initial value of its parameter.

    While a defect is selected, ``planted(name)`` is true for its name, and ``planted_nth(name, n)`` at each n-th call.
    """
    return _INSERTED % (f' = "{defect}"' if defect else "")


def parameter(module: str) -> str:
    """Return the path of the parameter of a module (``nfsd``) that selects its defect (writable)."""
    return f"/sys/module/{module}/parameters/defect"


def broken(module: str) -> str:
    """Return the path of the parameter of a module that counts the steps left out; writing 0 resets it."""
    return f"/sys/module/{module}/parameters/broken"
