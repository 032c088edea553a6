// SPDX-License-Identifier: GPL-2.0
/*
 * miscnames: other names for what the misc cgroup controller counts, for tests
 * only.
 *
 * A stock kernel has the resources sev and sev_es, no other, and their names
 * are compiled in. This module stands between the controller's files and user
 * space: what a file prints carries the names given here, what is written to
 * misc.max is translated back. Counting, limits and events stay the kernel's
 * own. It stays loaded until the machine ends: files that are open hold it.
 */
#include <linux/cgroup.h>
#include <linux/kprobes.h>
#include <linux/misc_cgroup.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

/* The order of enum misc_res_type. */
static const char *const stock[] = { "sev", "sev_es" };
#define NAMES ARRAY_SIZE(stock)
#define FILES_MAX 12

static char *shown[NAMES];
static int names;
module_param_array_named(names, shown, charp, &names, 0444);
MODULE_PARM_DESC(names, "what user space calls each resource, in the kernel's order");

static struct cftype *files;
static struct {
	int (*show)(struct seq_file *to, void *v);
	ssize_t (*write)(struct kernfs_open_file *of, char *buf, size_t size, loff_t offset);
} kernels_own[FILES_MAX];

/* The number of the resource that the text begins with, or -1. */
static int named(const char *text, const char *const *table)
{
	size_t size = strcspn(text, " .\n");
	int number;

	for (number = 0; number < names; number++)
		if (strlen(table[number]) == size && !strncmp(table[number], text, size))
			return number;
	return -1;
}

static int show(struct seq_file *to, void *v)
{
	size_t before = to->count;
	char *printed, *rest, *line;
	int err = kernels_own[seq_cft(to) - files].show(to, v);

	if (err || seq_has_overflowed(to))
		return err;
	printed = kmemdup_nul(to->buf + before, to->count - before, GFP_KERNEL);
	if (!printed)
		return -ENOMEM;
	to->count = before;
	for (rest = printed; (line = strsep(&rest, "\n")) && rest;) {
		int number = named(line, stock);

		if (number < 0)
			seq_printf(to, "%s\n", line);
		else
			seq_printf(to, "%s%s\n", shown[number], line + strlen(stock[number]));
	}
	kfree(printed);
	return 0;
}

static ssize_t write(struct kernfs_open_file *of, char *buf, size_t size, loff_t offset)
{
	char *text = strim(buf), *translated;
	int number = named(text, (const char *const *)shown);
	ssize_t done;

	if (number < 0)
		return -EINVAL;
	translated = kasprintf(GFP_KERNEL, "%s%s", stock[number], text + strlen(shown[number]));
	if (!translated)
		return -ENOMEM;
	done = kernels_own[of_cft(of) - files].write(of, translated, strlen(translated), offset);
	kfree(translated);
	return done < 0 ? done : size;
}

/* The controller's table of files is static, and the kernel's symbol table is
 * not exported: a probe knows the address of what it sits on.
 */
static struct cftype *find_files(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*address_of)(const char *name);

	if (register_kprobe(&probe))
		return NULL;
	address_of = (void *)probe.addr;
	unregister_kprobe(&probe);
	return (struct cftype *)address_of("misc_cg_files");
}

static int __init miscnames_init(void)
{
	int number;

	if (MISC_CG_RES_TYPES != NAMES || names != NAMES)
		return -EINVAL;
	files = find_files();
	if (!files)
		return -ENOENT;
	for (number = 0; files[number].name[0]; number++)
		if (number == FILES_MAX)
			return -E2BIG;
	for (number = 0; files[number].name[0]; number++) {
		kernels_own[number].show = files[number].seq_show;
		kernels_own[number].write = files[number].write;
		if (files[number].seq_show)
			WRITE_ONCE(files[number].seq_show, show);
		if (files[number].write)
			WRITE_ONCE(files[number].write, write);
	}
	return 0;
}

module_init(miscnames_init);
MODULE_DESCRIPTION("other names for the misc cgroup controller's resources, for tests");
MODULE_LICENSE("GPL");
