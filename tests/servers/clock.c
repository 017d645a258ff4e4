/* The wall clock of a process, moved by as many seconds as the file that CLOCK_FILE names says.
 *
 * Loaded by LD_PRELOAD. The file holds one 64-bit integer, which is mapped, so that the clock of a
 * running process can be moved. Other clocks are left alone. Who waits until a time of the moved
 * clock waits until that of the machine's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *moved_s;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_FILE");
    int file = path != NULL ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        moved_s = map;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (result == 0 && moved_s != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *moved_s;
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}

/* A monotonic clock begins when the machine starts: no time of it is as late as this. */
#define WALL_S_MIN 500000000

static const struct timespec *on_machine(const struct timespec *until, struct timespec *machine)
{
    if (until == NULL || moved_s == NULL || until->tv_sec < WALL_S_MIN)
        return until;
    *machine = *until;
    machine->tv_sec -= *moved_s;
    return machine;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec machine;
    if (real == NULL) {
        /* The oldest version, which dlsym finds, knows other conditions. */
        void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (found == NULL)
            found = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
        real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))found;
    }
    return real(condition, mutex, on_machine(until, &machine));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    static int (*real)(sem_t *, const struct timespec *);
    struct timespec machine;
    if (real == NULL)
        real = (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
    return real(semaphore, on_machine(until, &machine));
}
