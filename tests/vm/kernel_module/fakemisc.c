// SPDX-License-Identifier: GPL-2.0
/*
 * fakemisc: something to count for the misc cgroup controller, for tests only.
 *
 * Drivers such as KVM's SEV support register a capacity and charge it per
 * virtual machine. This module does the same on request of whoever writes to
 * /dev/fakemisc, so that the controller's own code can be tested without such
 * hardware. README.md lists the commands.
 */
#include <linux/fs.h>
#include <linux/misc_cgroup.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define COMMAND_SIZE 48

static unsigned long long capacity[MISC_CG_RES_TYPES + 1];
static int capacities;
module_param_array(capacity, ullong, &capacities, 0444);
MODULE_PARM_DESC(capacity, "what the host has of each resource, in the kernel's order");

#ifndef MODULE
/* Compiled in, the resources may be called otherwise (tests/vm/user_mode/build makes the names of the controller so). */
extern char *misc_res_name[MISC_CG_RES_TYPES];
static int names;
module_param_array_named(names, misc_res_name, charp, &names, 0444);
MODULE_PARM_DESC(names, "what user space calls each resource, in the kernel's order");
#endif

/* One open file: what a virtual machine would hold, and where it is charged. */
struct holding {
	struct mutex lock;
	struct misc_cg *where;
	u64 amount[MISC_CG_RES_TYPES + 1];
};

static int take(struct holding *h, int type, u64 amount)
{
	int err;

	if (!h->where)
		h->where = get_current_misc_cg();
	err = misc_cg_try_charge(type, h->where, amount);
	if (!err)
		h->amount[type] += amount;
	return err;
}

static int give(struct holding *h, int type, u64 amount)
{
	if (amount > h->amount[type])
		return -ERANGE;
	misc_cg_uncharge(type, h->where, amount);
	h->amount[type] -= amount;
	return 0;
}

static int lose(int type, u64 amount)
{
	struct misc_cg *here = get_current_misc_cg();

	misc_cg_uncharge(type, here, amount);
	put_misc_cg(here);
	return 0;
}

static int perform(struct holding *h, const char *verb, int type, u64 amount)
{
	if (type < 0 || type >= MISC_CG_RES_TYPES)
		return -EDOM;
	if (!strcmp(verb, "take"))
		return take(h, type, amount);
	if (!strcmp(verb, "give"))
		return give(h, type, amount);
	if (!strcmp(verb, "lose"))
		return lose(type, amount);
	if (!strcmp(verb, "have"))
		return misc_cg_set_capacity(type, amount);
	return -ENOTTY;
}

static ssize_t fakemisc_write(struct file *file, const char __user *from, size_t size, loff_t *offset)
{
	char command[COMMAND_SIZE], verb[8];
	struct holding *h = file->private_data;
	u64 amount;
	int type, err;

	if (size >= COMMAND_SIZE)
		return -E2BIG;
	if (copy_from_user(command, from, size))
		return -EFAULT;
	command[size] = '\0';
	if (sscanf(command, "%7s %d %llu", verb, &type, &amount) != 3)
		return -ENOTTY;
	mutex_lock(&h->lock);
	err = perform(h, verb, type, amount);
	mutex_unlock(&h->lock);
	return err ? err : size;
}

static int fakemisc_open(struct inode *inode, struct file *file)
{
	struct holding *h = kzalloc(sizeof(*h), GFP_KERNEL);

	if (!h)
		return -ENOMEM;
	mutex_init(&h->lock);
	file->private_data = h;
	return 0;
}

static int fakemisc_release(struct inode *inode, struct file *file)
{
	struct holding *h = file->private_data;
	int type;

	for (type = 0; h->where && type < MISC_CG_RES_TYPES; type++)
		misc_cg_uncharge(type, h->where, h->amount[type]);
	if (h->where)
		put_misc_cg(h->where);
	kfree(h);
	return 0;
}

static const struct file_operations fakemisc_files = {
	.owner = THIS_MODULE,
	.open = fakemisc_open,
	.release = fakemisc_release,
	.write = fakemisc_write,
};

static struct miscdevice fakemisc_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "fakemisc",
	.fops = &fakemisc_files,
	.mode = 0666,
};

static void set_capacities(bool present)
{
	int type;

	for (type = 0; type < capacities && type < MISC_CG_RES_TYPES; type++)
		misc_cg_set_capacity(type, present ? capacity[type] : 0);
}

static int __init fakemisc_init(void)
{
	int err = misc_register(&fakemisc_device);

	if (!err)
		set_capacities(true);
	return err;
}

static void __exit fakemisc_exit(void)
{
	misc_deregister(&fakemisc_device);
	set_capacities(false);
}

module_init(fakemisc_init);
module_exit(fakemisc_exit);
MODULE_DESCRIPTION("capacity for the misc cgroup controller, for tests");
MODULE_LICENSE("GPL");
