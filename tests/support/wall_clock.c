/* The wall clock of a process, by LD_PRELOAD: a page of memory says by how much it differs from the
   machine's, and whether the system calls it synchronized. wall_clock.py writes that page.

   Shifted are readings of the wall clock, the times of files, and waits until a time of the wall
   clock. Clocks that only count on are the machine's own. No locks, so a process of several threads
   may fork at any moment. Programs without libc (Go's) have the machine's clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#define NS 1000000000LL
#define WALL_FROM_S 1000000000LL /* a smaller time is of a clock that counts from the boot */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real)                                                                                     \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

typedef struct timespec Time;

struct page {
    int64_t wall_ns;    /* how far the wall clock is ahead of the machine's */
    int64_t files_ns;   /* the same of the times of files */
    int32_t synchronized; /* 1 yes, 0 no, -1 as the machine says */
};

static const struct page as_it_is = {0, 0, -1};
static const struct page *page = &as_it_is;

__attribute__((constructor)) static void map_page(void) {
    const char *path = getenv("TEST_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            page = mapped;
        close(file);
    }
}

static Time shifted(Time time, int64_t by_ns) {
    int64_t ns = time.tv_nsec + by_ns % NS;
    time.tv_sec += by_ns / NS + (ns >= NS) - (ns < 0);
    time.tv_nsec = ns + (ns < 0 ? NS : 0) - (ns >= NS ? NS : 0);
    return time;
}

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* The machine's time of a deadline. */
static const Time *deadline(const Time *given, Time *own) {
    if (!given || given->tv_sec < WALL_FROM_S)
        return given;
    *own = shifted(*given, -page->wall_ns);
    return own;
}

/* Readings */

int clock_gettime(clockid_t clock, Time *time) {
    REAL(clock_gettime);
    int failed = real(clock, time);
    if (!failed && is_wall(clock))
        *time = shifted(*time, page->wall_ns);
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    REAL(gettimeofday);
    int failed = real(time, zone);
    if (!failed) {
        Time now = {time->tv_sec, time->tv_usec * 1000};
        now = shifted(now, page->wall_ns);
        *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    }
    return failed;
}

time_t time(time_t *seconds) {
    Time now;
    clock_gettime(CLOCK_REALTIME, &now);
    return seconds ? (*seconds = now.tv_sec) : now.tv_sec;
}

int timespec_get(Time *time, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, time) ? base : 0;
}

int adjtimex(struct timex *clock) {
    REAL(adjtimex);
    int state = real(clock);
    return page->synchronized < 0 ? state : page->synchronized ? TIME_OK : TIME_ERROR;
}

/* Waits */

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const Time *until) {
    REAL(pthread_cond_timedwait);
    Time own;
    return real(c, m, deadline(until, &own));
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const Time *until) {
    REAL(pthread_cond_clockwait);
    Time own;
    return real(c, m, clock, deadline(until, &own));
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const Time *until) {
    REAL(pthread_mutex_timedlock);
    Time own;
    return real(mutex, deadline(until, &own));
}

int sem_timedwait(sem_t *semaphore, const Time *until) {
    REAL(sem_timedwait);
    Time own;
    return real(semaphore, deadline(until, &own));
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const Time *until) {
    REAL(sem_clockwait);
    Time own;
    return real(semaphore, clock, deadline(until, &own));
}

int clock_nanosleep(clockid_t clock, int flags, const Time *until, Time *left) {
    REAL(clock_nanosleep);
    Time own;
    return real(clock, flags, flags & TIMER_ABSTIME ? deadline(until, &own) : until, left);
}

int timerfd_settime(int file, int flags, const struct itimerspec *next, struct itimerspec *last) {
    REAL(timerfd_settime);
    struct itimerspec own = *next;
    if (flags & TFD_TIMER_ABSTIME)
        own.it_value = *deadline(&next->it_value, &own.it_value);
    return real(file, flags, &own, last);
}

long syscall(long number, ...) {
    REAL(syscall);
    long argument[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(given, long);
    va_end(given);
    Time own;
    if (number == SYS_futex && argument[1] & FUTEX_CLOCK_REALTIME)
        argument[3] = (long)deadline((const Time *)argument[3], &own);
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
}

/* Files */

/* A source of Python keeps its date: its bytecode would look stale, and each process with another
   clock would write that of all modules anew, also of the machine's Python. */
static int is_source(const char *path) {
    size_t length = path ? strlen(path) : 0;
    return length > 3 && !strcmp(path + length - 3, ".py");
}

static int dated(int failed, const char *path, struct stat *found) {
    if (!failed && !is_source(path)) {
        found->st_atim = shifted(found->st_atim, page->files_ns);
        found->st_mtim = shifted(found->st_mtim, page->files_ns);
        found->st_ctim = shifted(found->st_ctim, page->files_ns);
    }
    return failed;
}

/* struct stat and struct stat64 are the same on 64 bits. */
#define STAT(name, parameters, arguments, path)                                                    \
    int name parameters {                                                                          \
        static int(*real) parameters;                                                              \
        if (!real)                                                                                 \
            real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                     \
        return dated(real arguments, path, (struct stat *)found);                                  \
    }
#define STATS(name, type)                                                                          \
    STAT(stat##name, (const char *restrict path, struct type *restrict found), (path, found),      \
         path)                                                                                     \
    STAT(lstat##name, (const char *restrict path, struct type *restrict found), (path, found),     \
         path)                                                                                     \
    STAT(fstat##name, (int file, struct type *found), (file, found), NULL)                         \
    STAT(fstatat##name,                                                                            \
         (int file, const char *restrict path, struct type *restrict found, int flags),            \
         (file, path, found, flags), path)                                                         \
    STAT(__xstat##name, (int v, const char *path, struct type *found), (v, path, found), path)     \
    STAT(__lxstat##name, (int v, const char *path, struct type *found), (v, path, found), path)    \
    STAT(__fxstat##name, (int v, int file, struct type *found), (v, file, found), NULL)            \
    STAT(__fxstatat##name, (int v, int file, const char *path, struct type *found, int flags),     \
         (v, file, path, found, flags), path)
STATS(, stat)
STATS(64, stat64)

int statx(int file, const char *restrict path, int flags, unsigned mask,
          struct statx *restrict found) {
    REAL(statx);
    int failed = real(file, path, flags, mask, found);
    if (!failed && !is_source(path)) {
        struct statx_timestamp *times[] = {&found->stx_atime, &found->stx_btime, &found->stx_ctime,
                                           &found->stx_mtime};
        for (int i = 0; i < 4; i++) {
            Time time = {times[i]->tv_sec, times[i]->tv_nsec};
            time = shifted(time, page->files_ns);
            times[i]->tv_sec = time.tv_sec;
            times[i]->tv_nsec = (uint32_t)time.tv_nsec;
        }
    }
    return failed;
}

static const Time *undated(const Time given[2], Time own[2]) {
    for (int i = 0; given && i < 2; i++) {
        int is_time = given[i].tv_nsec != UTIME_NOW && given[i].tv_nsec != UTIME_OMIT;
        own[i] = is_time ? shifted(given[i], -page->files_ns) : given[i];
    }
    return given ? own : NULL;
}

int utimensat(int file, const char *path, const Time times[2], int flags) {
    REAL(utimensat);
    Time own[2];
    return real(file, path, undated(times, own), flags);
}

int futimens(int file, const Time times[2]) {
    REAL(futimens);
    Time own[2];
    return real(file, undated(times, own));
}

int utimes(const char *path, const struct timeval times[2]) {
    if (!times)
        return utimensat(AT_FDCWD, path, NULL, 0);
    Time given[2] = {{times[0].tv_sec, times[0].tv_usec * 1000},
                     {times[1].tv_sec, times[1].tv_usec * 1000}};
    return utimensat(AT_FDCWD, path, given, 0);
}

int utime(const char *path, const struct utimbuf *times) {
    if (!times)
        return utimensat(AT_FDCWD, path, NULL, 0);
    Time given[2] = {{times->actime, 0}, {times->modtime, 0}};
    return utimensat(AT_FDCWD, path, given, 0);
}
