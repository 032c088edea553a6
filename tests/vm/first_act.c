/* A container's program whose first act is to record on which CPUs it may run, and on which everybody else may:
 *
 *     first_act OUT ROOT    writes OUT, then waits to be killed
 *     first_act OUT         records nobody else, then looks busy: it wakes fifty times a second
 *
 * ROOT is the host's cgroup v2 tree, or a part of it. OUT appears whole, by a rename. Its first line is the time when the
 * program began, by the monotonic clock, the second one its own Cpus_allowed_list; each further one is a cgroup below ROOT
 * that has processes, and its cpuset.cpus.effective; the last one is the time when all was read.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST_PATH = 1024, LARGEST_FILE = 65536, LARGEST_RECORD = 1 << 20, DEEPEST = 5 };

static char file[LARGEST_FILE + 1];
static char record[LARGEST_RECORD];
static size_t recorded;

static int read_file(const char *path)
{
    int fd = open(path, O_RDONLY);
    ssize_t got = 0, more;

    if (fd < 0)
        return 0;
    while (got < LARGEST_FILE && (more = read(fd, file + got, LARGEST_FILE - got)) > 0)
        got += more;
    close(fd);
    file[got] = 0;
    return 1;
}

static void add(const char *first, const char *second)
{
    int length = snprintf(record + recorded, LARGEST_RECORD - recorded, "%s %s\n", first, second);

    if (length > 0 && recorded + (size_t)length < LARGEST_RECORD)
        recorded += (size_t)length;
}

/* Paths are relative to ROOT, where the process is. */
static void look_at(const char *cgroup, int depth)
{
    char path[LARGEST_PATH];
    struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    if (read_file(path) && file[0]) {
        snprintf(path, sizeof path, "%s/cpuset.cpus.effective", cgroup);
        if (read_file(path)) {
            file[strcspn(file, "\n")] = 0;
            add(cgroup, file);
        }
    }
    folder = depth < DEEPEST ? opendir(cgroup) : NULL;
    while (folder && (entry = readdir(folder)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", cgroup, entry->d_name);
            look_at(path, depth + 1);
        }
    if (folder)
        closedir(folder);
}

static void add_time(const char *what)
{
    struct timespec now;
    char text[32];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "%lld", now.tv_sec * 1000000000LL + now.tv_nsec);
    add(what, text);
}

int main(int count, char **words)
{
    struct timespec pause_time = {0, 20000000};
    char *own = NULL, part[LARGEST_PATH];
    int fd;

    add_time("began");
    if (count > 1 && read_file("/proc/self/status"))
        own = strstr(file, "\nCpus_allowed_list:\t");
    if (!own)
        return 1;
    own += strlen("\nCpus_allowed_list:\t");
    own[strcspn(own, "\n")] = 0;
    add("own", own);
    if (count > 2) {
        if (chdir(words[2]))
            return 1;
        look_at(".", 0);
    }
    add_time("at");
    snprintf(part, sizeof part, "%s.part", words[1]);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, record, recorded) != (ssize_t)recorded || close(fd) || rename(part, words[1]))
        return 1;
    while (count == 2)
        nanosleep(&pause_time, NULL);
    for (;;)
        pause();
}
