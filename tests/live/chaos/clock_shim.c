/* Moves the wall clock of one process: for LD_PRELOAD into a server, whose keys then expire early or late.
 *
 * CHAOS_CLOCK names a file that holds one int64: nanoseconds to add. It is mapped, so that whoever writes to it
 * steps the clock at once. Monotonic clocks are left alone: a step is a step of the wall clock and of nothing else.
 * The time is asked of the kernel itself, so nothing has to be looked up while the process is still being loaded.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t no_offset = 0;
static const volatile int64_t *offset = &no_offset;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        offset = found;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t ns = at->tv_sec * INT64_C(1000000000) + at->tv_nsec + *offset;
    at->tv_sec = ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at)
        *at = exact.tv_sec;
    return exact.tv_sec;
}
